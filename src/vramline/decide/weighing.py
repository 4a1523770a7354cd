"""Costs of nodes and cards under policies that think ahead, weighed anew only where something changed."""

import numpy as np
import numpy.typing as npt

from vramline.decide.alike import tell_apart
from vramline.decide.fragments import (
    Cards,
    OnKinds,
    Standing,
    cost_in_steps,
    on_kinds,
    take_stock,
    take_stock_of_many,
    weigh_cpu,
)
from vramline.decide.grid import as_grid
from vramline.decide.prospects import Prospects, look_ahead, sizes_on_kinds
from vramline.decide.scene import Scene
from vramline.model.ask import Ask, PolicyName
from vramline.model.columns import GpuColumns
from vramline.model.fleet import Fleet
from vramline.model.mix import class_of

__all__ = [
    "MANY",
    "THINKS_AHEAD",
    "Outlook",
    "best_fitting",
    "last_outlook",
    "on_kinds_of",
    "outlook_of",
    "weigh_blocks_for_cpu",
]

THINKS_AHEAD = frozenset({PolicyName.VRAMLINE, PolicyName.FGD})

MANY = 200
"""From so many blocks on it pays to weigh those that are in the same state once."""

_KEPT = 256
"""Amounts of CPU for which costs of nodes are kept."""

_FIRST = np.zeros(1, dtype=np.int64)

Ints = npt.NDArray[np.int64]


class Outlook:
    """What the pods to come could use of every node of a scene, kept up to date with it."""

    def __init__(self, fleet: Fleet, scene: Scene, prospects: Prospects) -> None:
        self.prospects = prospects
        self.standing = self._count(fleet.columns, scene, np.arange(len(fleet.columns.blocks)))
        self.for_cpu: dict[tuple[PolicyName, int], tuple[int, Ints]] = {}
        """By policy and milli-CPU: the version of the scene, and what a pod without GPUs costs each block."""
        self._seen = scene.changes.version

    def fork(self) -> "Outlook":
        """Return the same for a copy of the fleet."""
        copy: Outlook = object.__new__(Outlook)
        copy.prospects, copy._seen = self.prospects, self._seen
        copy.standing = self.standing.copy()
        copy.for_cpu = {}
        return copy

    def renew(self, fleet: Fleet, scene: Scene) -> None:
        """Count anew what changed in the scene."""
        if scene.changes.version == self._seen:
            return
        block = scene.changes.only_since(self._seen)
        if block is not None:
            there = slice(block, block + 1)
            self.standing.write(there, self._count_one(fleet.columns, scene, there))
        else:
            blocks = scene.changes.since(self._seen)
            self.standing.write(blocks, self._count(fleet.columns, scene, blocks))
        self._seen = scene.changes.version

    def _count_one(self, columns: GpuColumns, scene: Scene, there: slice) -> Standing:
        run = columns.blocks[there.start]
        rows = slice(run.start, run.start + run.width)
        return take_stock(self.prospects, scene.left[rows], columns.kind[rows], _FIRST, scene.cpu[there])

    def _count(self, columns: GpuColumns, scene: Scene, blocks: Ints) -> Standing:
        part, rows = columns.part(blocks)
        left, kind, cpu = scene.left[rows], part.kind, scene.cpu[blocks]
        if len(blocks) < MANY:
            return take_stock(self.prospects, left, kind, part.starts, cpu)
        first, sort = tell_apart(left * len(columns.kinds) + kind)
        return take_stock_of_many(self.prospects, left[first], kind[first], as_grid(part, sort, -1), cpu)


def outlook_of(fleet: Fleet, scene: Scene) -> Outlook:
    """Return the outlook of a fleet of which enough is known, as it is now."""
    prospects = look_ahead(fleet, counts_wide=scene.rules.policy is not PolicyName.FGD)
    known: Outlook | None = scene.built.get("outlook")
    if known is None or known.prospects is not prospects:
        known = scene.built["outlook"] = Outlook(fleet, scene, prospects)
    known.renew(fleet, scene)
    return known


def last_outlook(scene: Scene) -> Outlook:
    """Return the outlook that was last asked for."""
    known: Outlook = scene.built["outlook"]
    return known


def weigh_blocks_for_cpu(fleet: Fleet, scene: Scene, policy: PolicyName, cpu_milli: int) -> Ints:
    """Return what it costs each block's node to run a pod that takes CPU and no GPU."""
    outlook = outlook_of(fleet, scene)
    seen, costs = outlook.for_cpu.pop((policy, cpu_milli), (0, np.zeros(len(scene.cpu), dtype=np.int64)))
    blocks = scene.changes.since(seen)
    if len(blocks) >= MANY:
        first, like = tell_apart(scene.states(fleet.columns)[blocks])
        terms = weigh_cpu(outlook.prospects, outlook.standing.of(blocks[first]), cpu_milli)
        costs[blocks] = cost_in_steps(policy, outlook.prospects, terms)[like]
    elif len(blocks):
        terms = weigh_cpu(outlook.prospects, outlook.standing.of(blocks), cpu_milli)
        costs[blocks] = cost_in_steps(policy, outlook.prospects, terms)
    if len(outlook.for_cpu) >= _KEPT:
        outlook.for_cpu.clear()
    outlook.for_cpu[policy, cpu_milli] = scene.changes.version, costs
    return costs


def best_fitting(cards: Cards, gpus: int) -> Cards:
    """Return the `gpus` cards of each block that leave least behind."""
    order = np.lexsort((cards.left - cards.size, cards.block))
    block = cards.block[order]
    place = np.arange(len(block)) - np.searchsorted(block, block)
    return cards.some(order[place < gpus])


def on_kinds_of(columns: GpuColumns, prospects: Prospects, ask: Ask) -> OnKinds:
    """Return what an ask is to each kind of card."""
    return on_kinds(prospects, sizes_on_kinds(columns, class_of(ask)), ask.cpu_milli)
