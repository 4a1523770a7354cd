"""Every card of the cluster at one glance, a little column each. Only what looks different is drawn anew."""

from collections.abc import Iterator
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from vramline.dashboard.bars import draw_columns
from vramline.dashboard.card_table import CardTable, Layout
from vramline.dashboard.markup import id_of

__all__ = ["FleetMap"]

_STEPS = 26
"""How many different heights a column has."""


class FleetMap:
    """Drawings of all nodes, each with the number of the round in which it last changed."""

    def __init__(self) -> None:
        self.round = 0
        self.laid_out = 0
        """The round in which nodes last came or went."""
        self._layout: Layout | None = None
        self._levels: npt.NDArray[np.int16] = np.zeros((0, 4), dtype=np.int16)
        self._drawn: list[Markup] = []
        self._changed: list[int] = []

    def refresh(self, table: CardTable) -> None:
        """Take in how the cards are now."""
        levels = _levels_of(table)
        new = table.layout is not self._layout
        if new:
            stale = np.arange(len(table.layout.nodes))
            self._layout, self._drawn = table.layout, [Markup("")] * len(stale)
            self._changed = [0] * len(stale)
        else:
            stale = np.unique(table.layout.node_of[(levels != self._levels).any(axis=1)])
        self._levels = levels
        if len(stale) or new:
            self.round += 1
        if new:
            self.laid_out = self.round
        for node in stale.tolist():
            self._drawn[node] = self._draw(table.layout, node)
            self._changed[node] = self.round

    def all(self) -> list[Markup]:
        """Return the drawings of all nodes, by name."""
        return list(self._drawn)

    def since(self, seen: int) -> Iterator[tuple[str, Markup]]:
        """Yield id and drawing of every node that changed after the round `seen`."""
        if self._layout is not None and seen < self.round:
            for name, drawn, changed in zip(self._layout.nodes, self._drawn, self._changed, strict=True):
                if changed > seen:
                    yield id_of("m", name), drawn

    def _draw(self, layout: Layout, node: int) -> Markup:
        name = layout.nodes[node]
        cards = layout.cards_of(node)
        levels = [(h, r, u, bool(k)) for h, r, u, k in self._levels[cards.start : cards.stop].tolist()]
        drawn = draw_columns(levels, f"{name}: {len(cards)} GPUs")
        mini = f'<a class="mini" id="{id_of("m", name)}" href="/?node={quote(name)}">{drawn}</a>'
        return Markup(mini)  # noqa: S704 — a name that is quoted, and what is markup already


def _levels_of(table: CardTable) -> npt.NDArray[np.int16]:
    """Return for each card the heights of held, releasing and unmanaged, and whether anybody knows."""
    whole = np.maximum(table.usable, 1)
    tops = [
        np.clip(-(-_STEPS * part // whole), 0, _STEPS)
        for part in (
            table.held - table.releasing,
            table.held,
            table.held + table.unmanaged,
        )
    ]
    heights = [tops[0], tops[1] - tops[0], tops[2] - tops[1], table.known.astype(np.int64)]
    return np.stack(heights, axis=1).astype(np.int16)
