"""Policies that think of the pods to come: what a placement leaves behind, and who could use it.

fgd        fragmentation gradient descent (Weng et al., USENIX ATC 2023): the node whose memory loses least
           of its use to typical asks
vramline   the same, and: memory and CPU are of use together only; a residual of a card is worth what can
           still be cut from it; cards that others depend on are spared

    fragment(node) = Σ over classes m of  weight(m) × (free memory − memory that m could use)
    CPU in use     = Σ over classes m of  weight(m) × min(CPU left, CPU that m takes with that memory)

A placement costs what it adds to that, in thousandths of a typical card, rounded so that small differences
are ties: ties go to the lowest node rank, which keeps nodes full or empty.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramline.decide.cutting import PARTS
from vramline.decide.prospects import NOWHERE, Prospects
from vramline.model.ask import PolicyName

__all__ = [
    "STEP",
    "Cards",
    "OnKinds",
    "Standing",
    "Taking",
    "Terms",
    "attraction",
    "cost_in_steps",
    "look_at_taking",
    "on_kinds",
    "take_stock",
    "take_stock_of_many",
    "weigh",
    "weigh_cpu",
    "weights_of",
]

STEP = 20.0
"""Costs that differ by less than this many thousandths of a card are the same to policy vramline."""

_CPU_COUNTS, _CPU_SCARCE, _SCARCE_FROM = 0.2, 2.0, 0.8
"""How much CPU weighs that nobody can use any more: some always, more the scarcer CPU is in the mix."""
_REGRET = 12.0
"""A residual that is cut badly is lost for good: it weighs more than fragments, which others may mend."""
_SCARCITY = 0.6
_EPSILON = 1e-9
"""Against sums that come out a hair below a whole number."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int16]


class Cards(NamedTuple):
    """Cards, node after node: what is left of them, what they are, and to which node b they belong."""

    block: Ints
    left: Ints
    """MiB free; 0 where nobody can use the card."""
    kind: Ints
    size: Ints
    """MiB that the ask takes on the card."""

    def some(self, chosen: Ints | slice) -> "Cards":
        """Return some of them."""
        return Cards(*(each[chosen] for each in self))


class Standing:
    """What the pods to come could use of nodes b, by class m."""

    __slots__ = ("amount", "in_all", "kind", "number")

    def __init__(self, number: Counts, amount: Floats, kind: Ints, in_all: Floats) -> None:
        self.number = number
        """[b, m] How many cards can take an ask of the class; [b, 0] where none wants more than one."""
        self.amount = amount
        """[b, m] MiB free on those."""
        self.kind = kind
        """[b] The kind of the first card, by which it is told how much CPU a pod takes with its memory."""
        self.in_all = in_all
        """[3, b] Milli-CPU left; MiB that the classes could use, each counted as often as the class came; and
        milli-CPU that they could use."""

    def copy(self) -> "Standing":
        """Return the same, to go on from here."""
        return Standing(self.number.copy(), self.amount.copy(), self.kind.copy(), self.in_all.copy())

    def of(self, blocks: Ints) -> "Standing":
        """Return a copy of that of some of the nodes."""
        return Standing(
            self.number.take(blocks, axis=0),
            self.amount.take(blocks, axis=0),
            self.kind.take(blocks),
            self.in_all.take(blocks, axis=1),
        )

    def write(self, there: Ints | slice, new: "Standing") -> None:
        """Replace that of some of the nodes."""
        self.number[there], self.amount[there], self.kind[there] = new.number, new.amount, new.kind
        self.in_all[:, there] = new.in_all


class OnKinds(NamedTuple):
    """What an ask is on each kind k of card."""

    cpu: int
    worth: Floats | None
    """[k] What the ask is worth, in cards; None: it takes whole cards everywhere, which are not cut."""
    unit: Floats
    """[k] What a card is, in thousandths of a typical one; 0 where the ask takes a whole one."""
    scarcity: Floats
    """[k] What it costs to stand on such a card, on which others depend."""


class Terms(NamedTuple):
    """What placements cost, in thousandths of a typical card."""

    fragments: Floats
    cpu_lost: Floats
    regret: Floats
    scarcity: Floats


class Taking(NamedTuple):
    """What it is to take cards, one or several at a time (c), whatever else is on their nodes."""

    mib: Ints | Floats
    """[c] MiB that the ask takes."""
    amount: Floats
    """[c, m] By how much the MiB grow (never: they shrink) that are free on cards with room for the class."""
    number: Counts
    """[c, m] By how much the number of these cards does, if it counts."""
    regret: Floats
    scarcity: Floats

    def some(self, chosen: Ints) -> "Taking":
        """Return some of it."""
        return Taking(
            self.mib.take(chosen),
            self.amount.take(chosen, axis=0),
            self.number.take(chosen, axis=0),
            self.regret.take(chosen),
            self.scarcity.take(chosen),
        )

    def sets(self, chosen: Ints) -> "Taking":
        """Return what it is to take [c, 0…] several of these cards at a time; their regret does not count."""
        mib, amount, number, regret, scarcity = self.some(chosen[:, 0])
        for each in chosen.T[1:]:
            mib += self.mib.take(each)
            amount += self.amount.take(each, axis=0)
            number += self.number.take(each, axis=0)
            scarcity += self.scarcity.take(each)
        return Taking(mib, amount, number, np.zeros(len(regret)), scarcity)

    def by_node(self, node: Ints, nodes: int) -> "Taking":
        """Do the same, of each of so many nodes all cards that are on it: they stand next to each other."""
        amount, number = (
            np.zeros((nodes, self.amount.shape[1])),
            np.zeros((nodes, self.number.shape[1]), "i2"),
        )
        first = np.concatenate([[True], node[1:] != node[:-1]])[: len(node)].nonzero()[0]
        if len(first):
            there = node[first]
            number[there] = np.add.reduceat(self.number, first, axis=0)
            amount[there] = np.add.reduceat(self.amount, first, axis=0)
        mib = np.bincount(node, weights=self.mib, minlength=nodes).astype(np.float64)
        scarcity = np.bincount(node, weights=self.scarcity, minlength=nodes).astype(np.float64)
        return Taking(mib, amount, number, np.zeros(nodes), scarcity)

    @classmethod
    def join(cls, parts: "list[Taking]") -> "Taking":
        """Return all parts as one."""
        return parts[0] if len(parts) == 1 else cls(*map(np.concatenate, zip(*parts, strict=True)))


def take_stock(prospects: Prospects, left_mib: Ints, kind: Ints, starts: Ints, cpu: Ints) -> Standing:
    """Count what the pods to come could use of nodes.

    `left_mib` and `kind` are by card, node after node, as in `Cards`; `starts` is the first card of each.
    """
    left = left_mib.astype(np.float64)[:, None]
    hits = left >= prospects.size.take(kind, axis=0)
    number = np.add.reduceat(hits[:, : len(prospects.wanted)], starts, axis=0, dtype=np.int16)
    amount = left.T @ hits if len(starts) == 1 else np.add.reduceat(left * hits, starts, axis=0)
    return _stand(prospects, number, amount, kind[starts], cpu)


def take_stock_of_many(prospects: Prospects, left_mib: Ints, kind: Ints, sorts: Ints, cpu: Ints) -> Standing:
    """Do the same where many cards are alike: `left_mib` and `kind` are by sort of card.

    `sorts` is [b, 0…]: of which sort the cards of each node are, −1 where it has no more.
    """
    left = np.append(left_mib, -1).astype(np.float64)[:, None]  # the last sort is no card at all
    hits = left >= prospects.size.take(np.append(kind, 0), axis=0)
    one, mib = hits[:, : len(prospects.wanted)].astype(np.int16), left * hits
    number, amount = one.take(sorts[:, 0], axis=0), mib.take(sorts[:, 0], axis=0)
    for place in range(1, sorts.shape[1]):
        number += one.take(sorts[:, place], axis=0)
        amount += mib.take(sorts[:, place], axis=0)
    return _stand(prospects, number, amount, kind[sorts[:, 0]], cpu)


def _stand(prospects: Prospects, number: Counts, amount: Floats, kind: Ints, cpu: Ints) -> Standing:
    in_all, both = np.empty((3, len(cpu))), np.empty((2, *amount.shape))
    in_all[0], both[0] = cpu, amount
    in_all[1:] = _use(prospects, number, both, kind, in_all[0])
    return Standing(number, amount, kind, in_all)


def look_at_taking(prospects: Prospects, cards: Cards, ask: OnKinds) -> Taking:
    """Return what it is to take each of these cards alone; their nodes do not matter."""
    kind, counted = cards.kind, len(prospects.wanted)
    sizes = prospects.size.take(kind, axis=0)
    left, rest = cards.left.astype(np.float64)[:, None], (cards.left - cards.size).astype(np.float64)[:, None]
    hits, still = left >= sizes, rest >= sizes
    amount = rest * still
    amount -= left * hits
    return Taking(
        mib=cards.size,
        amount=amount,
        number=np.subtract(still[:, :counted], hits[:, :counted], dtype=np.int16),
        regret=np.zeros(len(rest))
        if ask.worth is None
        else _regret(prospects, cards, ask.worth) * ask.unit.take(kind),
        scarcity=ask.scarcity.take(kind),
    )


def weigh(prospects: Prospects, standing: Standing, blocks: Ints, taking: Taking, cpu: int) -> Terms:
    """Return what it costs to take cards, with so much CPU. `blocks` says on which nodes of the standing."""
    both, in_all = np.empty((2, *taking.amount.shape)), standing.in_all.take(blocks, axis=1)
    standing.amount.take(blocks, axis=0, out=both[0], mode="clip")  # quicker than to check them again
    both[0] += taking.amount
    number = standing.number.take(blocks, axis=0)
    number += taking.number
    lost = in_all[1:] - _use(prospects, number, both, standing.kind.take(blocks), in_all[0] - cpu)
    fragments, cpu_lost = _in_cards(prospects, lost, taking.mib, cpu)
    return Terms(fragments, cpu_lost, taking.regret, taking.scarcity)


def weigh_cpu(prospects: Prospects, standing: Standing, cpu: int) -> Terms:
    """Return what a pod without GPUs spoils on each node."""
    in_all, both = standing.in_all, np.empty((2, *standing.amount.shape))
    both[0] = standing.amount
    lost = in_all[1:] - _use(prospects, standing.number, both, standing.kind, in_all[0] - cpu)
    nothing = np.zeros(in_all.shape[1])
    fragments, cpu_lost = _in_cards(prospects, lost, nothing, 0)
    return Terms(
        fragments=fragments,
        cpu_lost=cpu_lost,
        regret=nothing,
        scarcity=nothing,
    )


def on_kinds(prospects: Prospects, sizes: Ints, cpu: int) -> OnKinds:
    """Return what an ask of these sizes on each kind of card (`NOWHERE`: it may not go there) is to them."""
    may = sizes < NOWHERE
    cheapest = prospects.pressure[may].min(initial=math.inf)
    scarcity = np.where(may, (prospects.pressure - cheapest) * sizes * 1000.0 / prospects.reference, 0.0)
    parts = np.where(may, -(-sizes * PARTS // prospects.promise), PARTS)
    worth = prospects.price[np.arange(len(parts)), parts]
    unit = np.where(parts < PARTS, prospects.promise * 1000.0 / prospects.reference, 0.0)
    return OnKinds(cpu, worth if unit.any() else None, unit, scarcity)


def weights_of(prospects: Prospects) -> dict[str, float]:
    """Return how much each of the terms weighs in policy vramline."""
    scarcer = _CPU_SCARCE * max(0.0, prospects.cpu_load - _SCARCE_FROM)
    return {
        "fragments": 1.0,
        "cpu_lost": _CPU_COUNTS + scarcer if prospects.cpu_load else 0.0,
        "regret": _REGRET,
        "scarcity": _SCARCITY,
    }


def cost_in_steps(policy: PolicyName, prospects: Prospects, terms: Terms) -> Ints:
    """Join the terms to one integer, lower is better; for fgd the negative of its published score."""
    if policy is PolicyName.FGD:
        return -np.floor(attraction(terms) + _EPSILON).astype(np.int64)
    weights = weights_of(prospects)
    cost = terms.fragments + weights["cpu_lost"] * terms.cpu_lost
    cost += weights["regret"] * terms.regret
    cost += weights["scarcity"] * terms.scarcity
    cost /= STEP
    cost += 0.5
    cost += _EPSILON
    return np.floor(cost, out=cost).astype(np.int64)


def attraction(terms: Terms) -> Floats:
    """Return the score of policy fgd, 0 to 100, before it is rounded down."""
    likes: Floats = 100.0 / (1.0 + np.exp(np.clip(terms.fragments / 1000.0, -500.0, 500.0)))
    return likes


def _use(prospects: Prospects, number: Counts, both: Floats, kind: Ints, cpu: Floats) -> Floats:
    """Return [2, b] the memory and the CPU that the classes could use, by how often they came.

    Whole numbers below 2^53 all the way, so that nothing depends on the order of summation. `both` is
    [2, b, m]: the memory on cards that can take an ask of each class, and room to work in.
    """
    usable, fed = both
    if cpu.min(initial=math.inf) < prospects.most_cpu:
        usable *= cpu[:, None] >= prospects.cpu
    if len(prospects.wanted):
        usable *= number >= prospects.wanted
    left = np.maximum(cpu, 0.0)[:, None]
    np.multiply(usable, prospects.cpu_with.take(kind, axis=0), out=fed)
    np.minimum(fed, left, out=fed)
    np.floor(fed, out=fed)
    in_all: Floats = both @ prospects.count
    if len(prospects.host_cpu):
        in_all[1] += np.floor(left / prospects.host_cpu) @ prospects.host_count
    return in_all


def _in_cards(prospects: Prospects, lost: Floats, own_mib: Ints | Floats, own_cpu: int) -> Floats:
    """Turn [2, b] memory and CPU that is lost into thousandths of a card, less what the pod itself takes."""
    lost /= prospects.total
    lost[0] -= own_mib
    lost[1] -= own_cpu
    lost[1] *= prospects.mib_of_cpu
    lost *= 1000.0 / prospects.reference
    return lost


def _regret(prospects: Prospects, cards: Cards, worth: Floats) -> Floats:
    """Return what the residual of each card, which has room, loses beyond what the ask is worth, in cards."""
    kind, values = cards.kind, prospects.values
    promise, first = prospects.promise.take(kind), kind * np.int64(PARTS + 1)
    before, after = cards.left * PARTS // promise, (cards.left - cards.size) * PARTS // promise
    before += first
    after += first
    lost: Floats = values.take(before) - values.take(after)
    lost -= worth.take(kind)
    return lost
