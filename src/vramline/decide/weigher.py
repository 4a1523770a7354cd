"""What an ask costs, card by card or node by node, under a policy that thinks ahead; few or many at once.

Of many, what is the same is worked out once: what taking a card changes for the pods to come follows from
its kind and from what is left of it, and its cost from that and from the state of its node. The answer is
the same as that of weighing each by itself.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramline.decide.alike import tell_apart
from vramline.decide.fragments import (
    Cards,
    OnKinds,
    Standing,
    Taking,
    cost_in_steps,
    look_at_taking,
    weigh,
)
from vramline.decide.prospects import Prospects
from vramline.model.ask import PolicyName

__all__ = ["Weigher"]

_AT_ONCE = 2**14
"""Cards times classes that are weighed at once: what comes up in between stays in the processor's caches."""
_MOST_BITS = 40
"""So many cards of a node are told apart by the bits of a number."""

Ints = npt.NDArray[np.int64]


class Weigher(NamedTuple):
    """A policy, the pods to come, what they could use of each node, and what the ask is to kinds of cards."""

    policy: PolicyName
    prospects: Prospects
    standing: Standing
    ask: OnKinds

    def weigh(self, cards: Cards) -> Ints:
        """Return the cost of taking each of these cards alone."""
        return self._cost(cards.block, look_at_taking(self.prospects, cards, self.ask))

    def weigh_many(self, cards: Cards, states: Ints) -> Ints:
        """Return the same; `states` are by block, equal where nodes are in the same state."""
        taking, sort = self._look_at_sorts(cards)
        first, like = tell_apart(states[cards.block] * len(taking.mib) + sort)
        blocks, sort = cards.block[first], sort[first]
        costs = np.empty(len(first), dtype=np.int64)
        for some in self._parts(len(first)):
            costs[some] = self._cost(blocks[some], taking.some(sort[some]))
        return costs[like]

    def weigh_sets(self, blocks: Ints, taken: Cards) -> Ints:
        """Return the cost of taking cards of these blocks together; they are named by their place here."""
        taking = look_at_taking(self.prospects, taken, self.ask)
        return self._cost(blocks, taking.by_node(taken.block, len(blocks)))

    def weigh_many_sets(self, blocks: Ints, taken: Cards, states: Ints, places: Ints) -> Ints:
        """Return the same where each block gives as many cards, those at [block, card] these places."""
        taking, sort = self._look_at_sorts(taken)
        first, like = _one_of_each(states, places)
        blocks, sort = blocks[first], sort.reshape(places.shape)[first]
        costs = np.empty(len(first), dtype=np.int64)
        for some in self._parts(len(first)):
            costs[some] = self._cost(blocks[some], taking.sets(sort[some]))
        return costs[like]

    def _cost(self, blocks: Ints, taking: Taking) -> Ints:
        terms = weigh(self.prospects, self.standing, blocks, taking, self.ask.cpu)
        return cost_in_steps(self.policy, self.prospects, terms)

    def _look_at_sorts(self, cards: Cards) -> tuple[Taking, Ints]:
        """Return what it is to take a card of each sort, and of which sort each is."""
        first, sort = tell_apart(cards.left * len(self.prospects.promise) + cards.kind)
        kinds = (cards.some(first[some]) for some in self._parts(len(first)))
        return Taking.join([look_at_taking(self.prospects, each, self.ask) for each in kinds]), sort

    def _parts(self, number: int) -> Iterator[slice]:
        """Cut so many things into parts that are weighed at once."""
        at_once = max(1, _AT_ONCE // max(1, len(self.prospects.count)))
        return (slice(start, min(start + at_once, number)) for start in range(0, max(1, number), at_once))


def _one_of_each(states: Ints, places: Ints) -> tuple[Ints, Ints]:
    """Tell nodes apart by their states and by which of their cards are meant."""
    if places.max(initial=0) >= _MOST_BITS:
        every = np.arange(len(states))
        return every, every
    return tell_apart((states << _MOST_BITS) + (np.int64(1) << places).sum(axis=1))
