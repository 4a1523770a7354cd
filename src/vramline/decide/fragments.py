"""Policies that think of the pods to come: what a placement leaves behind, and who could use it.

fgd        fragmentation gradient descent (Weng et al., USENIX ATC 2023): the node whose memory loses least
           of its use to typical asks
vramline   the same, and: memory counts as usable only as far as CPU for it is left; a residual of a card
           is worth what can still be cut from it; cards that others depend on are spared

    fragment(node) = Σ over classes m of  weight(m) × (free memory − memory that m could use)

A placement costs what it adds to that, in thousandths of a typical card, rounded so that small differences
are ties: ties go to the lowest node rank, which keeps nodes full or empty.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vramline.decide.cutting import PARTS
from vramline.decide.prospects import NOWHERE, Prospects
from vramline.model.ask import PolicyName

__all__ = ["STEP", "Spot", "Terms", "Want", "cost_in_steps", "weigh_hosts", "weigh_placements"]

STEP = 20.0
"""Costs that differ by less than this many thousandths of a card are the same to policy vramline."""

_CPU_COUNTS, _CPU_SCARCE, _SCARCE_FROM = 0.05, 2.0, 0.8
"""How much memory without CPU weighs: a little always, more the scarcer CPU is in the mix."""
_REGRET = 8.0
"""A residual that is cut badly is lost for good: it weighs more than fragments, which others may mend."""
_SCARCITY = 0.6
_EPSILON = 1e-9
"""Against sums that come out a hair below a whole number."""
_MOST_PODS = 10_000
"""More pods than a node runs, however much CPU it has."""
_AT_ONCE = 2**21
"""Elements of an array that are worked on at once."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Spot:
    """Nodes b with cards w, as they are before the placement."""

    left: Ints
    """[b, w] MiB free; 0 where nobody can use the card, or the node has no such card."""
    kind: Ints
    cpu: Ints
    """[b] Milli-CPU left."""

    def part(self, chosen: slice) -> "Spot":
        """Return some of the nodes."""
        return Spot(self.left[chosen], self.kind[chosen], self.cpu[chosen])


@dataclass(frozen=True, slots=True)
class Want:
    """What is to be placed."""

    size: Ints
    """[b, w] MiB on each card."""
    fits: Mask
    """[b, w] Whether the card may be taken."""
    gpus: int
    cpu: int
    cheapest: float
    """Pressure on the least wanted kind of card that would do."""

    def part(self, chosen: slice) -> "Want":
        """Return the same for some of the nodes."""
        return Want(self.size[chosen], self.fits[chosen], self.gpus, self.cpu, self.cheapest)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a placement costs, in thousandths of a typical card, [b, w]; for several cards at once [b, 1]."""

    fragments: Floats
    without_cpu: Floats
    regret: Floats
    scarcity: Floats


def weigh_placements(prospects: Prospects, spot: Spot, want: Want) -> Terms:
    """Return what it costs to take each card that fits or, if several are wanted, the best-fitting ones."""
    weigh = _weigh_single if want.gpus == 1 else _weigh_several
    return _in_parts(prospects, spot, want, weigh)


def weigh_hosts(prospects: Prospects, spot: Spot, cpu: int) -> Terms:
    """Return what it costs, [b, 1], to give a pod without GPUs so much CPU of each node."""
    nothing = Want(np.zeros_like(spot.left), np.zeros(spot.left.shape, dtype=np.bool_), 0, cpu, 0.0)
    return _in_parts(prospects, spot, nothing, _weigh_several)


def cost_in_steps(policy: PolicyName, prospects: Prospects, terms: Terms) -> Ints:
    """Join the terms to one integer, lower is better."""
    if policy is PolicyName.FGD:
        likes = 100.0 / (1.0 + np.exp(np.clip(terms.fragments / 1000.0, -500.0, 500.0)))
        return 100 - np.floor(likes + _EPSILON).astype(np.int64)
    weight = _CPU_COUNTS + _CPU_SCARCE * max(0.0, prospects.cpu_load - _SCARCE_FROM)
    cost = terms.fragments + weight * terms.without_cpu + _REGRET * terms.regret + _SCARCITY * terms.scarcity
    return np.floor(cost / STEP + 0.5 + _EPSILON).astype(np.int64)


def _in_parts(
    prospects: Prospects, spot: Spot, want: Want, weigh: Callable[[Prospects, Spot, Want], Terms]
) -> Terms:
    """Weigh so many nodes at a time that the arrays stay in the caches."""
    nodes, cards = spot.left.shape
    at_once = max(1, _AT_ONCE // max(1, cards * len(prospects.weight)))
    found = [
        weigh(prospects, spot.part(slice(start, start + at_once)), want.part(slice(start, start + at_once)))
        for start in range(0, max(nodes, 1), at_once)
    ]
    return Terms(
        *(
            np.concatenate([getattr(each, name) for each in found])
            for name in ("fragments", "without_cpu", "regret", "scarcity")
        )
    )


def _weigh_single(prospects: Prospects, spot: Spot, want: Want) -> Terms:
    sizes = prospects.size[spot.kind]
    hits, amounts = _usable_cards(spot.left, sizes)
    number, amount = hits.sum(axis=1), amounts.sum(axis=1)
    before = _usable(prospects, number, amount, spot.cpu, sizes[:, 0])
    after_left = np.where(want.fits, spot.left - want.size, 0)
    after_hits, after_amounts = _usable_cards(after_left, sizes)
    after = _usable(
        prospects,
        number[:, None] - hits + after_hits,
        amount[:, None] - amounts + after_amounts,
        (spot.cpu - want.cpu)[:, None],
        sizes[:, :1],
    )
    lost = [
        (b[:, None] - a - want.size) * 1000.0 / prospects.reference
        for b, a in zip(before, after, strict=True)
    ]
    return Terms(
        fragments=lost[0],
        without_cpu=lost[1],
        regret=_regret(prospects, spot, want),
        scarcity=_scarcity(prospects, spot, want),
    )


def _weigh_several(prospects: Prospects, spot: Spot, want: Want) -> Terms:
    taken = _best_fitting(spot, want)
    sizes = prospects.size[spot.kind]
    hits, amounts = _usable_cards(spot.left, sizes)
    before = _usable(prospects, hits.sum(axis=1), amounts.sum(axis=1), spot.cpu, sizes[:, 0])
    hits, amounts = _usable_cards(np.where(taken, spot.left - want.size, spot.left), sizes)
    after = _usable(prospects, hits.sum(axis=1), amounts.sum(axis=1), spot.cpu - want.cpu, sizes[:, 0])
    wanted = np.where(taken, want.size, 0).sum(axis=1)
    lost = [(b - a - wanted) * 1000.0 / prospects.reference for b, a in zip(before, after, strict=True)]
    scarcity = np.where(taken, _scarcity(prospects, spot, want), 0.0).sum(axis=1)
    return Terms(lost[0][:, None], lost[1][:, None], np.zeros((len(taken), 1)), scarcity[:, None])


def _best_fitting(spot: Spot, want: Want) -> Mask:
    """Mark the `gpus` cards of each node that leave least behind."""
    rest = np.where(want.fits, spot.left - want.size, NOWHERE)
    order = np.argsort(rest, axis=1, kind="stable")
    taken = np.zeros(rest.shape, dtype=np.bool_)
    np.put_along_axis(taken, order[:, : want.gpus], values=True, axis=1)
    return taken & want.fits


def _usable_cards(left: Ints, sizes: Ints) -> tuple[Mask, Ints]:
    """Return for [b, w, m] whether a card can take an ask of the class, and how much of it counts then."""
    hits = left[:, :, None] >= sizes
    return hits, left[:, :, None] * hits


def _usable(prospects: Prospects, number: Ints, amount: Ints, cpu: Ints, size: Ints) -> tuple[Floats, Floats]:
    """Return the memory that the classes could use, weighted; and as far as the CPU for it lasts."""
    open_to = (number >= prospects.gpus) & (cpu[..., None] >= prospects.cpu) & (prospects.gpus > 0)
    usable = np.where(open_to, amount, 0)
    pods = np.minimum(cpu[..., None] // np.maximum(prospects.cpu, 1), _MOST_PODS)
    fed = pods * (size * prospects.gpus)
    lasting = np.where(prospects.cpu > 0, np.minimum(usable, fed), usable)
    return usable @ prospects.weight, lasting @ prospects.weight


def _regret(prospects: Prospects, spot: Spot, want: Want) -> Floats:
    """Return what the residual of each card loses beyond what an ask of this size is worth."""
    promise = prospects.promise[spot.kind]
    before = np.clip(spot.left * PARTS // promise, 0, PARTS)
    size = np.clip(-(-want.size * PARTS // promise), 0, PARTS)
    after = np.clip((spot.left - want.size) * PARTS // promise, 0, PARTS)
    values = prospects.values
    lost = values[spot.kind, before] - values[spot.kind, after] - prospects.price[spot.kind, size]
    whole = size >= PARTS
    regret: Floats = np.where(whole, 0.0, lost * promise * 1000.0 / prospects.reference)
    return regret


def _scarcity(prospects: Prospects, spot: Spot, want: Want) -> Floats:
    """Return what standing on a card costs that others cannot do without."""
    dearer = prospects.pressure[spot.kind] - want.cheapest
    scarcity: Floats = dearer * want.size * 1000.0 / prospects.reference
    return scarcity
