"""Samples of every card for the history, when something about it has changed; and what befell it.

All cards are compared at once, in arrays: a cluster in which nothing happens costs nothing.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from vramline.explain.chronicle import CardEvent, CardEventKind, CardSample
from vramline.explain.ghosts import Ghost, find_ghosts, say_ghost
from vramline.model.cluster import Cluster
from vramline.model.gpu import Health
from vramline.telemetry.archive_file import CardRow

__all__ = ["CardSampler"]

_AGAIN_S = 600.0
"""How long an unchanged card is not written down again."""
_PART = 1_000
"""Cards that are written down at a time."""
_UNKNOWN = -1
_USABLE, _HELD, _RELEASING, _UNMANAGED, _USED, _FRESH, _WRITTEN_AT = range(7)
"""Lines of the table below; the last is when a card was written down."""

Table = npt.NDArray[np.float64]
Take = Callable[[Iterable[CardRow], Iterable[CardEvent]], None]


class CardSampler:
    """Remembers what was written down last about each card."""

    def __init__(self, cluster: Cluster, take: Take, *, grace_s: float = 60.0) -> None:
        """`grace_s` is how long after its pod's end memory may stay before it is a ghost."""
        self._cluster = cluster
        self._take = take
        self._grace_s = grace_s
        self._layout: object = None
        self._uuids: list[str | None] = []
        self._health: dict[str, Health] = {}
        self._totals: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._last: Table = np.full((7, 0), np.nan)
        self._ghosts: dict[tuple[str, str], Ghost] = {}

    async def run(self, every_s: float = 10.0) -> None:
        """Sample until cancelled."""
        while True:
            for _ in self.sample():
                await asyncio.sleep(0)  # calls of a large cluster do not wait until all cards are told
            await asyncio.sleep(every_s)

    def sample(self) -> Iterator[int]:
        """Compare every card with what was written down last, and hand on what changed, a part at a time.

        How many cards is told after every part; all parts are about the moment of the first.
        """
        now = self._cluster.now()
        events = list(self._follow_layout(now)) if self._has_moved() else []
        table = self._figures(now)
        known = ~np.isnan(self._last[_WRITTEN_AT])
        differs = (table[:_WRITTEN_AT] != self._last[:_WRITTEN_AT]).any(axis=0)
        due = differs | (now - self._last[_WRITTEN_AT] >= _AGAIN_S)
        turned = known & (table[_FRESH] != self._last[_FRESH])
        events += [self._say_sight(row, table, now) for row in self._in_use(turned)]
        events += self._follow_ghosts(now)
        self._last[:, due] = table[:, due]
        rows = self._in_use(due)
        names, figures = [self._uuids[row] or "" for row in rows], table[:, rows].T
        if events:
            self._take((), events)
        for start in range(0, len(rows), _PART):
            part = slice(start, start + _PART)
            samples = map(_sample_of, figures[part].tolist())
            self._take(list(map(CardRow, names[part], samples)), ())
            yield len(names[part])

    def _has_moved(self) -> bool:
        return self._cluster.fleet.columns.layout is not self._layout

    def _follow_layout(self, now: float) -> Iterator[CardEvent]:
        """Cards came, went, or changed their health: find for each what was written about it."""
        columns = self._cluster.fleet.columns
        was = {uuid: row for row, uuid in enumerate(self._uuids) if uuid is not None}
        last: Table = np.full((7, len(columns)), np.nan)
        self._uuids, self._totals = [None] * len(columns), np.zeros(len(columns), dtype=np.int64)
        for uuid, row in columns.row_of.items():
            self._uuids[row] = uuid
            if uuid in was:
                last[:, row] = self._last[:, was[uuid]]
            gpu = columns.card(row)
            self._totals[row] = gpu.total
            before = self._health.get(uuid, gpu.health if self._layout is None else Health.HEALTHY)
            self._health[uuid] = gpu.health
            if before is not gpu.health:
                text = f"was {before}, is {gpu.health}"
                yield CardEvent(at=now, node=gpu.node, gpu=uuid, kind=CardEventKind.HEALTH, text=text)
        self._health = {uuid: self._health[uuid] for uuid in columns.row_of}
        self._last, self._layout = last, columns.layout

    def _figures(self, now: float) -> Table:
        fleet, columns = self._cluster.fleet, self._cluster.fleet.columns
        fresh = columns.fresh(now=now, max_age_s=self._cluster.rules_for(None).max_age_s)
        table: Table = np.empty((7, len(columns)))
        table[_USABLE] = columns.promise + fleet.margin
        table[_HELD] = np.where(fresh, columns.held, columns.claimed)
        table[_RELEASING] = np.where(fresh, columns.held_releasing, columns.claimed_releasing)
        table[_UNMANAGED] = np.where(fresh, columns.unmanaged, _UNKNOWN)
        used = np.rint(columns.used_percent * self._totals / 100.0)
        table[_USED] = np.where(fresh & ~np.isnan(used), used, _UNKNOWN)
        table[_FRESH] = fresh
        table[_WRITTEN_AT] = now
        return table

    def _in_use(self, mask: npt.NDArray[Any]) -> list[int]:
        return [int(row) for row in np.flatnonzero(mask) if self._uuids[row] is not None]

    def _say_sight(self, row: int, table: Table, now: float) -> CardEvent:
        gpu = self._cluster.fleet.columns.card(row)
        text = "is seen again" if table[_FRESH, row] else "nobody has looked at it lately; the books count"
        return CardEvent(at=now, node=gpu.node, gpu=gpu.uuid, kind=CardEventKind.SIGHT, text=text)

    def _follow_ghosts(self, now: float) -> list[CardEvent]:
        max_age_s = self._cluster.rules_for(None).max_age_s
        found = find_ghosts(self._cluster.fleet, now=now, max_age_s=max_age_s, after_s=self._grace_s)
        ghosts = {(ghost.gpu, ghost.pod): ghost for ghost in found}
        told = [(ghost, say_ghost(ghost)) for key, ghost in ghosts.items() if key not in self._ghosts] + [
            (ghost, f"what {ghost.pod} left behind is gone")
            for key, ghost in self._ghosts.items()
            if key not in ghosts
        ]
        self._ghosts = ghosts
        return [
            CardEvent(at=now, node=ghost.node, gpu=ghost.gpu, kind=CardEventKind.GHOST, text=text)
            for ghost, text in told
        ]


def _sample_of(figures: list[float]) -> CardSample:
    usable, held, releasing, unmanaged, used, _fresh, at = figures
    return CardSample(
        at=at,
        usable_mib=int(usable),
        held_mib=int(held),
        releasing_mib=int(releasing),
        unmanaged_mib=None if unmanaged == _UNKNOWN else int(unmanaged),
        used_mib=None if used == _UNKNOWN else int(used),
    )
