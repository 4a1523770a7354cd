"""All cards as arrays, in the order in which people read them: by node, then by index."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vramline.model.ask import MibSize
from vramline.model.cluster import Cluster
from vramline.model.fleet import Fleet
from vramline.model.gpu import PhysicalGpu
from vramline.model.reason import FITS

__all__ = ["CardTable", "Layout", "Totals", "TotalsOfSize", "read_table", "sum_up"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_SIZES_GIB = (8, 16, 24, 40, 80)
_USUAL_MIB = 8_192
"""What an ask is taken to be before any was seen."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which cards there are; the same object while none comes or goes."""

    key: object
    nodes: list[str]
    """Nodes that have cards, by name."""
    gpus: list[PhysicalGpu]
    rows: Ints
    """Row of each card in the fleet's columns."""
    node_of: Ints
    """Index into `nodes` of each card."""
    starts: Ints
    """Index of the first card of each node."""

    def cards_of(self, node: int) -> range:
        """Return the indices of a node's cards."""
        start = int(self.starts[node])
        stop = int(self.starts[node + 1]) if node + 1 < len(self.nodes) else len(self.gpus)
        return range(start, stop)


@dataclass(frozen=True, slots=True)
class CardTable:
    """Where the memory of every card is, in MiB, as of one moment."""

    layout: Layout
    at: float
    usable: Ints
    held: Ints
    releasing: Ints
    unmanaged: Ints
    """0 where nobody knows; see `known`."""
    free: Ints
    known: Mask
    """Whether a fresh look at the card counts."""
    open: Mask
    """Whether any new pod may get the card."""
    margin: int

    def by_node(self, figures: npt.NDArray[Any]) -> Ints:
        """Sum a column over the cards of each node."""
        sums = np.bincount(self.layout.node_of, weights=figures, minlength=len(self.layout.nodes))
        return sums.astype(np.int64)


@dataclass(frozen=True, slots=True)
class TotalsOfSize:
    """How many pods of one size still fit, each on one card."""

    gib: int
    fit: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over cards, in MiB."""

    cards: int
    nodes: int
    usable: int
    held: int
    releasing: int
    unmanaged: int
    margin: int
    free: int
    """Where it is known. Less than nothing on a card counts as nothing here, and in `over`."""
    unknown: int
    """Free by the books alone, on cards that nobody has looked at for too long."""
    over: int
    unseen: int
    """Cards that nobody has looked at for too long."""
    largest: int
    usual_mib: int
    """What pods usually ask for on one card."""
    stranded: int
    """Free memory in pieces smaller than that, or on cards that take no pods."""
    sizes: tuple[TotalsOfSize, ...]

    @property
    def stranded_percent(self) -> int:
        """Part of the free memory that a usual pod cannot use."""
        return round(100 * self.stranded / self.free) if self.free else 0


def read_table(cluster: Cluster, before: Layout | None = None) -> CardTable:
    """Read all cards; `before` is the last layout, to be kept while it holds."""
    fleet, now = cluster.fleet, cluster.now()
    columns = fleet.columns
    layout = before if before is not None and before.key is columns.layout else _lay_out(fleet)
    rows = layout.rows
    known = columns.fresh(now=now, max_age_s=cluster.rules_for(None).max_age_s)[rows]
    closed = fleet.node_codes()[columns.node_of_block[columns.block[rows]]] != FITS
    return CardTable(
        layout=layout,
        at=now,
        usable=columns.promise[rows] + fleet.margin,
        held=np.where(known, columns.held[rows], columns.claimed[rows]),
        releasing=np.where(known, columns.held_releasing[rows], columns.claimed_releasing[rows]),
        unmanaged=np.where(known, columns.unmanaged[rows], 0),
        free=np.where(known, columns.free_observed[rows], columns.free_books[rows]),
        known=known,
        open=(columns.static_code[rows] == FITS) & (columns.slots_left[rows] > 0) & ~closed,
        margin=fleet.margin,
    )


def sum_up(fleet: Fleet, table: CardTable) -> Totals:
    """Add up all cards."""
    free = np.maximum(table.free, 0)
    usual = _usual_ask(fleet)
    on_offer = np.where(table.open & table.known, free, 0)
    useless = np.where(table.known, free, 0)[~table.open | (free < usual)]
    return Totals(
        cards=len(table.layout.gpus),
        nodes=len(table.layout.nodes),
        usable=int(table.usable.sum()),
        held=int(table.held.sum()),
        releasing=int(table.releasing.sum()),
        unmanaged=int(table.unmanaged.sum()),
        margin=table.margin * len(table.layout.gpus),
        free=int(free[table.known].sum()),
        unknown=int(free[~table.known].sum()),
        over=int(-np.minimum(table.free, 0).sum()),
        unseen=int((~table.known).sum()),
        largest=int(on_offer.max(initial=0)),
        usual_mib=usual,
        stranded=int(useless.sum()),
        sizes=tuple(TotalsOfSize(gib, int((on_offer // (gib * 1024)).sum())) for gib in _SIZES_GIB),
    )


def _usual_ask(fleet: Fleet) -> int:
    """Return the median of what pods asked for on one card, in MiB, where they asked in MiB."""
    asked = sorted(
        (each.size.mib, count) for each, count in fleet.mix.counts.items() if isinstance(each.size, MibSize)
    )
    seen, half = 0, sum(count for _, count in asked) / 2
    for mib, count in asked:
        seen += count
        if seen >= half:
            return mib
    return _USUAL_MIB


def _lay_out(fleet: Fleet) -> Layout:
    nodes = sorted((node for node in fleet.nodes if node.gpus), key=lambda node: node.name)
    gpus: list[PhysicalGpu] = []
    node_of: list[int] = []
    for number, node in enumerate(nodes):
        gpus += sorted(node.gpus, key=lambda gpu: (gpu.index, gpu.uuid))
        node_of += [number] * len(node.gpus)
    indices = np.array(node_of, dtype=np.int64)
    return Layout(
        key=fleet.columns.layout,
        nodes=[node.name for node in nodes],
        gpus=gpus,
        rows=np.array([fleet.columns.row_of[gpu.uuid] for gpu in gpus], dtype=np.int64),
        node_of=indices,
        starts=np.searchsorted(indices, np.arange(len(nodes))),
    )
