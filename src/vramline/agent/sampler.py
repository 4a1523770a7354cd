"""One sample: look at every card, find the owners of its processes, and put it into a report."""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from vramline.agent.attribution import Attributor, Owner
from vramline.agent.cards import SeenCard
from vramline.agent.figures import Figures
from vramline.agent.reporting import NodeFacts, pids_on, write_report
from vramline.agent.source import CardSource, Look
from vramline.agent.stream import Taken
from vramline.model.gpu import Health
from vramline.probes.device import DeviceProbe, Failed

__all__ = ["Sampler", "next_tick"]

_LIMIT_S = 5.0
"""After this a look at all cards is given up; a probe gives up a card that hangs after two."""


def next_tick(tick: float, now: float, interval_s: float) -> float:
    """Return the first tick after now; ticks are whole intervals apart, so that lateness does not add up.

    >>> next_tick(10.0, 10.2, 1.0), next_tick(10.0, 12.5, 1.0)
    (11.0, 13.0)
    """
    return tick + interval_s * max(1, math.floor((now - tick) / interval_s) + 1)


class Sampler:
    """Looks at the cards of all vendors."""

    def __init__(
        self,
        facts: NodeFacts,
        probes: Iterable[DeviceProbe],
        attributor: Attributor,
        figures: Figures,
        *,
        clock: Callable[[], float],
    ) -> None:
        self.facts = facts
        self.attributor = attributor
        self.sources = tuple(CardSource(probe, _LIMIT_S, clock) for probe in probes)
        self._figures = figures
        self._clock = clock

    async def sample(self) -> Taken:
        """Read everything once. Nothing in the result was read before this call."""
        began, wall = self._clock(), time.time()
        looks = await asyncio.gather(*(source.look() for source in self.sources))
        cards = tuple(card for look in looks for card in look.cards)
        notes = tuple(note for look in looks for note in look.notes)
        has_looked = any(source.has_looked for source in self.sources)
        report = write_report(
            self.facts, cards, self._owners(cards), observed_at=wall if has_looked else None, notes=notes
        )
        self._count(looks, cards)
        self._figures.sampled_at, self._figures.took_s = began, self._clock() - began
        self._figures.report = report
        return Taken(report, began)

    def recall(self, healths: Mapping[str, Health]) -> None:
        """Take over what was last reported of the cards' health."""
        for source in self.sources:
            source.cards.recall(healths)

    async def glance(self, uuids: tuple[str, ...]) -> Taken:
        """Read only these cards, now."""
        began, wall = self._clock(), time.time()
        cards = [card for source in self.sources for card in await source.glance(uuids)]
        return Taken(write_report(self.facts, cards, self._owners(cards), observed_at=wall), began)

    def _owners(self, cards: Sequence[SeenCard]) -> dict[int, Owner] | None:
        """Return whose the processes are; None: the lists cannot be trusted, because not all are visible."""
        return self.attributor.attribute(pids_on(cards)) if self.attributor.sees_host else None

    def close(self) -> None:
        """Let the threads go."""
        for source in self.sources:
            source.close()

    def _count(self, looks: list[Look], cards: tuple[SeenCard, ...]) -> None:
        failed = [code for card in cards for code in _failures(card)]
        for code in (*failed, *(look.failure.code for look in looks if look.failure is not None)):
            self._figures.count_error(code)
        if looks and all(look.failure is not None for look in looks):
            self._figures.samples["none"] += 1
        else:
            self._figures.samples["partial" if failed else "whole"] += 1


def _failures(card: SeenCard) -> list[str]:
    reading = card.reading
    if isinstance(reading, Failed):
        return []
    answers = (
        reading.total,
        reading.used,
        reading.utilization_percent,
        reading.temperature_c,
        reading.processes,
    )
    return [answer.code for answer in answers if isinstance(answer, Failed)]
