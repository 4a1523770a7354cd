"""Policies that others published and that ours is measured against (Weng et al., USENIX ATC 2023, section 6).

bestfit      least CPU and memory left on the node
dotprod      least alike in what the pod wants and what the node has left
clustering   nodes that hold pods of the same kind: a share, 1, 2, 4 or 8 cards
packing      shared cards first, then free cards of used nodes, then untouched nodes
random       any; the same pod goes the same way in the same cluster

All score in whole points from 0 to 100; ties go to the lowest node rank. CPU counts where it is known.
"""

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vramline.decide.prospects import sizes_on_kinds
from vramline.model.ask import Ask, PolicyName
from vramline.model.fleet import Fleet
from vramline.model.mix import class_of
from vramline.model.reason import FITS

__all__ = ["BASELINES", "Parts", "Room", "add_up", "baseline_terms", "look_at_room"]

BASELINES = frozenset(
    {
        PolicyName.BESTFIT,
        PolicyName.DOTPROD,
        PolicyName.CLUSTERING,
        PolicyName.PACKING,
        PolicyName.RANDOM,
    }
)

_EPSILON = 1e-9

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Parts = list[tuple[str, npt.NDArray[Any], float]]
"""What makes up a score: names, values by block, and their weights. The score is the sum, rounded down."""


@dataclass(frozen=True, slots=True)
class Room:
    """What nodes have and have left, by block; memory as MiB over all cards."""

    gpu_left: Ints
    cpu_left: Ints | None
    """None: nobody counts CPU."""
    most_gpu: int
    """Of the largest node, when empty."""
    most_cpu: int


def look_at_room(fleet: Fleet, free: Ints) -> Room:
    """Sum up what is left on each node."""
    columns = fleet.columns
    usable = columns.static_code == FITS
    starts = columns.starts
    left = np.add.reduceat(np.where(usable, np.maximum(free, 0), 0), starts) if len(starts) else starts
    whole = np.add.reduceat(np.where(usable, columns.promise, 0), starts) if len(starts) else starts
    most_cpu = _most_cpu(fleet)
    cpu_left = None
    if fleet.hosts is not None and most_cpu > 0:
        # A node that does not say what CPU it has counts like the largest that does.
        cpu_left = np.clip(fleet.hosts.cpu_milli[columns.node_of_block], 0, most_cpu)
    return Room(
        gpu_left=left,
        cpu_left=cpu_left,
        most_gpu=max(int(whole.max(initial=0)), 1),
        most_cpu=max(most_cpu, 1),
    )


def baseline_terms(
    policy: PolicyName, fleet: Fleet, room: Room, ask: Ask | None, wanted: Ints, cpu: int
) -> Parts:
    """Return what makes up the points of each block's node. `wanted` is MiB over all cards taken."""
    match policy:
        case PolicyName.BESTFIT:
            return _bestfit(room, wanted, cpu)
        case PolicyName.DOTPROD:
            return _dotprod(room, wanted, cpu)
        case PolicyName.CLUSTERING:
            return _clustering(fleet, room, ask)
        case PolicyName.PACKING:
            return [("packing", _packing(fleet, room, ask), 1.0)]
        case _:
            return [("draw", _random(fleet, ask, cpu), 1.0)]


def add_up(parts: Parts) -> Ints:
    """Return the cost of each block's node: the negative of its points, which are rounded down."""
    points = sum(values * weight for _, values, weight in parts)
    return -np.floor(points + _EPSILON).astype(np.int64)


def _bestfit(room: Room, wanted: Ints, cpu: int) -> Parts:
    memory = (room.gpu_left - wanted) / room.most_gpu
    base = ("base", np.ones(len(memory)), 100.0)
    if room.cpu_left is None:
        return [base, ("memory_left", memory, -100.0)]
    return [base, ("memory_left", memory, -50.0), ("cpu_left", (room.cpu_left - cpu) / room.most_cpu, -50.0)]


def _dotprod(room: Room, wanted: Ints, cpu: int) -> Parts:
    memory = room.gpu_left * wanted / room.most_gpu**2
    base = ("base", np.ones(len(memory)), 100.0)
    if room.cpu_left is None:
        return [base, ("memory_alike", memory, -100.0)]
    return [
        base,
        ("memory_alike", memory, -50.0),
        ("cpu_alike", room.cpu_left * (cpu / room.most_cpu**2), -50.0),
    ]


def _clustering(fleet: Fleet, room: Room, ask: Ask | None) -> Parts:
    """75: only pods of this kind are there; 50: among others; 25: nobody; 0: only others. Fuller first."""
    if ask is None:
        return [("company", np.zeros(len(room.gpu_left)), 1.0)]
    held = _kinds_held(fleet)
    mine = 1 << _kind_of(ask.gpus, is_share=_is_share(fleet, ask))
    base = np.select([held == mine, (held & mine) > 0, held == 0], [75.0, 50.0, 25.0], default=0.0)
    return [("company", base, 1.0), ("fill", (room.most_gpu - room.gpu_left) / room.most_gpu, 25.0)]


def _packing(fleet: Fleet, room: Room, ask: Ask | None) -> Floats:
    """100 less a tenth of the percentage left of shared cards; 50 less free cards taken; 33 less all cards.

    These are points where shared cards do, where free cards of a used node are needed, and of an untouched
    node. The tightest cards are taken.
    """
    columns = fleet.columns
    if ask is None or not len(columns):
        return np.zeros(len(room.gpu_left))
    promise, left = columns.promise, np.maximum(columns.free_books, 0)
    untouched = columns.per_block(left >= promise)
    fits = np.flatnonzero(left >= sizes_on_kinds(columns, class_of(ask))[columns.kind])
    taken = fits[np.lexsort((left[fits], columns.block[fits]))]
    block = columns.block[taken]
    taken = taken[np.arange(len(block)) - np.searchsorted(block, block) < ask.gpus]
    block, is_free, blocks = columns.block[taken], left[taken] >= promise[taken], len(room.gpu_left)
    free = np.bincount(block, weights=is_free, minlength=blocks)
    percent = np.bincount(block, weights=left[taken] * 100 // np.maximum(promise[taken], 1), minlength=blocks)
    return np.select(
        [untouched == columns.widths, free > 0],
        [33.0 - untouched, np.maximum(33.0, 50.0 - free)],
        default=np.maximum(50.0, 100.0 - percent // 10),
    )


def _random(fleet: Fleet, ask: Ask | None, cpu: int) -> Floats:
    """Draw a number for each node from the pod's name and the node's rank."""
    seed = zlib.crc32((ask.pod_uid if ask is not None else f"{cpu} {fleet.generation}").encode())
    nodes = fleet.rank()[fleet.columns.node_of_block].astype(np.uint64) + np.uint64(seed)
    mixed = (nodes * np.uint64(0x9E3779B97F4A7C15)) ^ (
        (nodes * np.uint64(0xBF58476D1CE4E5B9)) >> np.uint64(29)
    )
    return (mixed >> np.uint64(40)).astype(np.float64)


def _is_share(fleet: Fleet, ask: Ask) -> bool:
    """Whether the ask takes less than a card, on the largest kind of card that it may use."""
    sizes = sizes_on_kinds(fleet.columns, class_of(ask))
    return ask.gpus == 1 and any(
        size < kind.promise for size, kind in zip(sizes.tolist(), fleet.columns.kinds, strict=True)
    )


def _kind_of(gpus: int, *, is_share: bool) -> int:
    return 0 if is_share else min(gpus, 16).bit_length()


@dataclass(frozen=True, slots=True)
class _KindsHeld:
    """The kinds of pods on each block, with what they were counted from."""

    layout: object
    version: int
    bits: Ints

    def fork(self) -> "_KindsHeld":
        """Return the same for a copy of the fleet."""
        return self


def _kinds_held(fleet: Fleet) -> Ints:
    """Return for each block the set of kinds of pods on it, as bits; counted anew where something changed."""
    columns = fleet.columns
    known: _KindsHeld | None = fleet.remembered.get("kinds held")
    if known is None or known.layout is not columns.layout:
        known = _KindsHeld(columns.layout, -1, np.zeros(len(columns.blocks), dtype=np.int64))
    changed = columns.changes.since(known.version)
    held = known.bits.copy()
    for block in changed.tolist():
        held[block] = _kinds_on(fleet, block)
    fleet.remembered["kinds held"] = _KindsHeld(columns.layout, columns.changes.version, held)
    return held


def _kinds_on(fleet: Fleet, block: int) -> int:
    cards: dict[str, int] = {}
    shared: set[str] = set()
    run = fleet.columns.blocks[block]
    for row, gpu in enumerate(run.gpus, start=run.start):
        for claim in fleet.ledger.of_card(gpu.uuid):
            cards[claim.pod_uid] = cards.get(claim.pod_uid, 0) + 1
            if claim.mib < fleet.columns.promise[row]:
                shared.add(claim.pod_uid)
    bits = 0
    for pod_uid, number in cards.items():
        bits |= 1 << _kind_of(number, is_share=pod_uid in shared)
    return bits


@dataclass(frozen=True, slots=True)
class _MostCpu:
    """The milli-CPU of the largest node, with what it was counted from."""

    key: object
    milli: int

    def fork(self) -> "_MostCpu":
        """Return the same for a copy of the fleet."""
        return self


def _most_cpu(fleet: Fleet) -> int:
    key = (fleet.columns.layout, fleet.node_count)
    known: _MostCpu | None = fleet.remembered.get("most cpu")
    if known is None or known.key != key:
        known = _MostCpu(key, max((node.host.cpu_milli or 0 for node in fleet.nodes), default=0))
        fleet.remembered["most cpu"] = known
    return known.milli
