"""Which nodes come nearest to fitting, and which reason speaks for the pod.

Nearest is the node that lacks the fewest MiB; nodes refused for anything but memory come after all of
those, card reasons before host reasons. Everything is by array, so that 5,000 nodes cost what 5 do.
"""

from collections.abc import Callable
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from vramline.decide.pick import best_first
from vramline.decide.scores import UNREACHABLE
from vramline.model.ask import Ask
from vramline.model.decision import Decision
from vramline.model.fleet import Fleet
from vramline.model.reason import CODE_OF, FITS, REASON_OF, Reason

__all__ = ["CARD_CODES", "Survey", "count_codes", "most_frequent", "reasons_of", "wants_unknown_cards"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]
Key = Callable[[Ints], Ints]

_SHORT_CODES = (CODE_OF[Reason.INSUFFICIENT_VRAM], CODE_OF[Reason.GPU_TOO_SMALL])
_MEMORY_CODES = (*_SHORT_CODES, CODE_OF[Reason.NOT_ENOUGH_GPUS])

_NEARNESS: tuple[Reason, ...] = (
    Reason.INSUFFICIENT_VRAM,
    Reason.GPU_TOO_SMALL,
    Reason.NOT_ENOUGH_GPUS,
    Reason.NO_SLOT_LEFT,
    Reason.INSUFFICIENT_CORES,
    Reason.STALE_OBSERVATION,
    Reason.CORDONED_GPU,
    Reason.UNHEALTHY_GPU,
    Reason.MIG_PARTITIONED,
    Reason.WRONG_MODEL,
    Reason.WRONG_UUID,
    Reason.KEPT_FOR_ANOTHER,
    Reason.NO_DEVICE_LEFT,
    Reason.KUBELET_CHOOSES,
    Reason.INSUFFICIENT_CPU,
    Reason.INSUFFICIENT_MEMORY,
    Reason.TOO_MANY_PODS,
    Reason.NODE_CORDONED,
    Reason.UNTOLERATED_TAINT,
    Reason.NODE_AFFINITY_MISMATCH,
    Reason.NODE_NOT_READY,
    Reason.FROZEN_NODE,
    Reason.INVENTORY_CONFLICT,
    Reason.UNKNOWN_INVENTORY,
    Reason.NOT_A_CANDIDATE,
    Reason.NO_SUCH_GPU,
    Reason.INVALID_REQUEST,
)
"""Reasons of nodes, nearest to fitting first."""

CARD_CODES = tuple(CODE_OF[reason] for reason in _NEARNESS[: _NEARNESS.index(Reason.INSUFFICIENT_CPU)])
"""Codes that a node has because of its cards: nothing but the cards stands in the way there."""

_PLACE_OF_CODE = np.zeros(len(Reason) + 1, dtype=np.int64)
for _place, _reason in enumerate(_NEARNESS, start=1):
    _PLACE_OF_CODE[CODE_OF[_reason]] = _place
_PLACE_OF_CODE[CODE_OF[Reason.GPU_TOO_SMALL]] = _PLACE_OF_CODE[CODE_OF[Reason.INSUFFICIENT_VRAM]]


class Survey:
    """All nodes of a decision: fitting ones best first, then misses nearest first."""

    def __init__(self, fleet: Fleet, decision: Decision) -> None:
        self._fleet, self._decision = fleet, decision
        self._listed: Ints | None = None
        self.nodes = fleet.live_count
        self.fitting_nodes = decision.fitting_count
        self.speaks = None if decision.placement is not None else self._reason_of_pod()
        """The reason of the pod; None: it was placed."""

    @cached_property
    def _live(self) -> Ints:
        return self._fleet.live_numbers()

    def counts(self) -> Ints:
        """Return how many nodes have each code."""
        codes, live = self._decision.node_codes, self._live
        return count_codes(codes if len(live) == len(codes) else codes[live])

    @cached_property
    def lacking(self) -> Ints:
        """By node number: MiB that its cards lack in all; UNREACHABLE where memory alone would not help."""
        return _by_node(self._fleet, self._decision.lacking, missing=UNREACHABLE)

    @cached_property
    def fitting(self) -> Ints:
        """By node number: how many cards fit and may be taken together."""
        return _by_node(self._fleet, self._decision.fitting, missing=0)

    def best(self, most: int) -> Ints:
        """Return the numbers of the best nodes that fit, best first."""
        decision, wanted = self._decision, min(most, self.fitting_nodes)
        if len(decision.best_nodes) >= wanted:
            return decision.best_nodes[:wanted]
        return best_first(self._fleet, decision.scores, wanted)

    def first(self, most: int | None) -> Ints:
        """Return the numbers of the first nodes in that order (None: all)."""
        if most is not None and most <= self.fitting_nodes:
            return self.best(most)
        self._listed = self._shortest(most) if most else None
        if self._listed is None:
            self._listed = _first_by(self._keys, self._live, most)
        return self._listed

    def _shortest(self, most: int) -> Ints | None:
        """Return the first nodes if nothing fits and enough nodes lack memory alone; None: look elsewhere."""
        numbers, lacking, nearest = self._short
        if self.fitting_nodes or len(numbers) < most or self._decision.ask.gpus > 1:
            return None
        if len(nearest) >= most:
            return nearest[:most]
        near = (lacking <= np.partition(lacking, most - 1)[most - 1]).nonzero()[0]
        nearest = near[lacking[near].argsort(kind="stable")[:most]]  # equals stay in the order of their ranks
        first: Ints = numbers.take(nearest)
        return first

    def nearest(self, most: int, codes: tuple[int, ...]) -> Ints:
        """Return the numbers of the first nodes in that order that have one of these codes."""
        wanted, node_codes = _is_one_of(codes), self._decision.node_codes
        if self._listed is not None:
            listed = self._listed[wanted[node_codes[self._listed]]]
            if len(listed) >= most:  # the first of all nodes were listed, so these are the first of theirs
                return listed[:most]
        return _first_by(self._keys, self._live[wanted[node_codes[self._live]]], most)

    @cached_property
    def _short(self) -> tuple[Ints, Ints, Ints]:
        """By rank, the numbers of the nodes that lack memory on cards; how much; and who lacks least."""
        codes, by_rank = self._decision.node_codes, self._fleet.ranks().by_rank
        short = (codes == _SHORT_CODES[0]) | (codes == _SHORT_CODES[1])
        numbers = short.nonzero()[0] if by_rank is None else by_rank.compress(short.take(by_rank))
        lacking = self.lacking.take(numbers)
        return numbers, lacking, numbers.compress(lacking == lacking.min()) if len(numbers) else numbers

    def _reason_of_pod(self) -> Reason:
        """Return the reason of the nearest miss, or else the most frequent one among nodes with GPUs."""
        fleet, decision = self._fleet, self._decision
        *_, nearest = self._short
        if len(nearest):
            return most_frequent(decision.node_codes[nearest])
        live = self._live
        speakers = live[fleet.node_codes()[live] != CODE_OF[Reason.NO_SUCH_GPU]]
        if not len(speakers):
            return Reason.NO_SUCH_GPU
        if wants_unknown_cards(fleet, decision.ask):
            return Reason.WRONG_UUID
        codes = decision.node_codes[speakers]
        if (codes == CODE_OF[Reason.NOT_ENOUGH_GPUS]).any():
            return Reason.NOT_ENOUGH_GPUS
        asked = codes[codes != CODE_OF[Reason.NOT_A_CANDIDATE]]
        return most_frequent(asked if len(asked) else codes)

    @property
    def _keys(self) -> tuple[Key, ...]:
        """By what nodes are ordered, one after the other: how near their reason is, and how near they are."""
        codes = self._decision.node_codes
        keys: list[Key] = [lambda numbers: _PLACE_OF_CODE[codes[numbers]]]
        if self.fitting_nodes:
            keys.append(lambda numbers: np.where(codes[numbers] == FITS, -self._decision.scores[numbers], 0))
        return (
            *keys,
            lambda numbers: np.where(_BY_MEMORY[codes[numbers]], self.lacking[numbers], 0),
            lambda numbers: np.where(_BY_MEMORY[codes[numbers]], -self.fitting[numbers], 0),
            lambda numbers: self._fleet.rank()[numbers],
        )


def _first_by(keys: tuple[Key, ...], numbers: Ints, most: int | None) -> Ints:
    """Return the first `most` of `numbers` in the order of `keys`, without ordering the others."""
    sure: list[Ints] = []
    ties, wanted = numbers, len(numbers) if most is None else most
    for key in keys:
        if len(ties) <= wanted or not wanted:
            break
        values = key(ties)
        last = np.partition(values, wanted - 1)[wanted - 1]
        sure.append(ties[values < last])
        wanted -= len(sure[-1])
        ties = ties[values == last]
    chosen = np.concatenate([*sure, ties[:wanted]])
    return chosen[np.lexsort([key(chosen) for key in reversed(keys)])] if len(chosen) > 1 else chosen


def count_codes(codes: Codes) -> Ints:
    """Return how often each code is among these."""
    return np.bincount(codes)


def reasons_of(counts: Ints) -> dict[Reason, int]:
    """Return the reasons among codes that were counted; FITS is none."""
    return {REASON_OF[code]: often for code, often in enumerate(counts.tolist()) if often and code != FITS}


def most_frequent(codes: Codes) -> Reason:
    """Return the reason that most codes give, among equals the one nearest to fitting."""
    counts = reasons_of(count_codes(codes))
    return min(counts, key=lambda reason: (-counts[reason], _PLACE_OF_CODE[CODE_OF[reason]], reason))


def wants_unknown_cards(fleet: Fleet, ask: Ask) -> bool:
    """Whether the ask names cards none of which is in the fleet: no state of any node could help."""
    wanted = ask.constraints.use_uuids
    return bool(wanted) and not any(uuid in fleet.columns.row_of for uuid in wanted)


@cache
def _is_one_of(codes: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Return by code whether it is among these. Not to be written to."""
    known = np.zeros(len(Reason) + 1, dtype=np.bool_)
    known[list(codes)] = True
    return known


_BY_MEMORY = _is_one_of(_MEMORY_CODES)


def _by_node(fleet: Fleet, by_block: Ints, *, missing: int) -> Ints:
    """Move figures of blocks to the numbers of their nodes."""
    if fleet.columns.is_straight(fleet.node_count):
        return by_block
    result = np.full(fleet.node_count, missing, dtype=np.int64)
    nodes = fleet.columns.node_of_block
    result[nodes[nodes >= 0]] = by_block[nodes >= 0]
    return result
