"""Costs of nodes and cards under policies that think ahead, weighed anew only where something changed.

A cluster changes in one place at a time: between two pods of the same class a few nodes did. What was
weighed is kept with everything it was weighed from, and a node counts as changed when any of that differs;
so the answer never depends on what was asked before.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vramline.decide.fragments import Spot, Want, cost_in_steps, weigh_hosts, weigh_placements
from vramline.decide.prospects import NOWHERE, Prospects, look_ahead, sizes_on_kinds
from vramline.model.ask import Ask, PolicyName
from vramline.model.columns import GpuColumns
from vramline.model.fleet import Fleet
from vramline.model.mix import class_of
from vramline.model.reason import FITS

__all__ = ["THINKS_AHEAD", "Weighed", "weigh_blocks", "weigh_blocks_for_cpu"]

THINKS_AHEAD = frozenset({PolicyName.VRAMLINE, PolicyName.FGD})

_KEPT = 256
"""Classes of asks whose costs are kept."""
_BIAS = 2**32
"""Costs may be negative where a placement mends; what is added makes all of them positive."""
_MOST_CPU = 10**9

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Weighed:
    """Costs, with what they were weighed from."""

    rows: Ints
    """What it costs to take the card; meaningless where one card is not enough."""
    blocks: Ints
    """What it costs to go to the node; meaningless where it does not fit."""
    left: Ints
    size: Ints
    fits: Mask
    cpu: Ints


def weigh_blocks(fleet: Fleet, ask: Ask, policy: PolicyName, free: Ints, size: Ints, fits: Mask) -> Weighed:
    """Return the costs of an ask on every card and node. `free`, `size` and `fits` are by row."""
    columns, prospects = fleet.columns, look_ahead(fleet)
    left = np.where((columns.static_code == FITS) & (columns.slots_left > 0), np.maximum(free, 0), 0)
    now = Weighed(size, size, left, size, fits, _cpu_of_blocks(fleet))
    known, changed = _recall(fleet, (policy, class_of(ask)), now)
    if len(changed):
        rows, spot, want = _picture(columns, prospects, changed, now, ask)
        costs = cost_in_steps(policy, prospects, weigh_placements(prospects, spot, want)) + _BIAS
        _write(known, now, changed, rows, costs, want)
    return known


def weigh_blocks_for_cpu(fleet: Fleet, policy: PolicyName, cpu_milli: int, free: Ints) -> Ints:
    """Return what it costs each block's node to run a pod that takes CPU and no GPU."""
    columns, prospects = fleet.columns, look_ahead(fleet)
    left = np.where(columns.static_code == FITS, np.maximum(free, 0), 0)
    nothing = np.zeros(len(columns), dtype=np.int64)
    now = Weighed(nothing, nothing, left, nothing, nothing.astype(np.bool_), _cpu_of_blocks(fleet))
    known, changed = _recall(fleet, (policy, cpu_milli), now)
    if len(changed):
        _, spot = _spot(columns, changed, now)
        costs = cost_in_steps(policy, prospects, weigh_hosts(prospects, spot, cpu_milli)) + _BIAS
        known.blocks[changed] = costs[:, 0]
        known.left, known.cpu = now.left, now.cpu
    return known.blocks


def _recall(fleet: Fleet, what: Hashable, now: Weighed) -> tuple[Weighed, Ints]:
    """Return what was weighed before, and the blocks for which it no longer holds."""
    kept: OrderedDict[Hashable, Weighed] = fleet.remembered.setdefault("weighed", OrderedDict())
    key = (what, fleet.mix, fleet.mix.version, fleet.columns.layout)
    known = kept.get(key)
    blocks = len(fleet.columns.blocks)
    if known is None or len(known.rows) != len(now.left):
        known = Weighed(
            np.zeros(len(now.left), dtype=np.int64),
            np.zeros(blocks, dtype=np.int64),
            now.left,
            now.size,
            now.fits,
            now.cpu,
        )
        kept[key] = known
        if len(kept) > _KEPT:
            kept.popitem(last=False)
        return known, np.flatnonzero(fleet.columns.node_of_block >= 0)
    kept.move_to_end(key)
    changed = (known.left != now.left) | (known.size != now.size) | (known.fits != now.fits)
    if not blocks:
        return known, np.zeros(0, dtype=np.int64)
    touched = np.logical_or.reduceat(changed, fleet.columns.starts) | (known.cpu != now.cpu)
    return known, np.flatnonzero(touched & (fleet.columns.node_of_block >= 0))


def _write(known: Weighed, now: Weighed, changed: Ints, rows: Ints, costs: Ints, want: Want) -> None:
    if want.gpus == 1:
        here = rows >= 0
        known.rows[rows[here]] = costs[here]
        known.blocks[changed] = np.where(want.fits, costs, np.iinfo(np.int64).max).min(axis=1)
    else:
        known.blocks[changed] = costs[:, 0]
    known.left, known.size, known.fits, known.cpu = now.left, now.size, now.fits, now.cpu


def _picture(
    columns: GpuColumns, prospects: Prospects, blocks: Ints, now: Weighed, ask: Ask
) -> tuple[Ints, Spot, Want]:
    rows, spot = _spot(columns, blocks, now)
    here = rows >= 0
    want = Want(
        size=np.where(here, now.size[rows], NOWHERE),
        fits=here & now.fits[rows],
        gpus=ask.gpus,
        cpu=ask.cpu_milli,
        cheapest=_cheapest(columns, prospects, ask),
    )
    return rows, spot, want


def _spot(columns: GpuColumns, blocks: Ints, now: Weighed) -> tuple[Ints, Spot]:
    """Lay the rows of blocks side by side, −1 where a node has fewer cards than the widest."""
    widths = columns.widths[blocks]
    place = np.arange(widths.max(initial=1))
    rows = np.where(place < widths[:, None], columns.starts[blocks][:, None] + place, -1)
    here = rows >= 0
    spot = Spot(
        left=np.where(here, now.left[rows], 0),
        kind=np.where(here, columns.kind[rows], columns.kind[columns.starts[blocks]][:, None]),
        cpu=now.cpu[blocks],
    )
    return rows, spot


def _cheapest(columns: GpuColumns, prospects: Prospects, ask: Ask) -> float:
    """Return the pressure on the least wanted kind of card that the ask may use at all, full or not."""
    may = sizes_on_kinds(columns, class_of(ask)) < NOWHERE
    return float(prospects.pressure[may].min()) if may.any() else 0.0


def _cpu_of_blocks(fleet: Fleet) -> Ints:
    """Return the milli-CPU left on each block's node; very much where nobody counts."""
    nodes = fleet.columns.node_of_block
    if fleet.hosts is None:
        return np.full(len(nodes), _MOST_CPU, dtype=np.int64)
    return np.minimum(np.where(nodes >= 0, fleet.hosts.cpu_milli[nodes], 0), _MOST_CPU)
