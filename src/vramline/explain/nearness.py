"""Which nodes come nearest to fitting, and which reason speaks for the pod.

Nearest is the node that lacks the fewest MiB; nodes refused for anything but memory come after all of
those, card reasons before host reasons. Everything is by array, so that 5,000 nodes cost what 5 do.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vramline.decide.filters import fitting_cards, shortfall
from vramline.decide.scores import UNREACHABLE, chosen_cost
from vramline.model.ask import Ask
from vramline.model.decision import Decision
from vramline.model.fleet import Fleet
from vramline.model.reason import CODE_OF, FITS, REASON_OF, Reason

__all__ = ["CARD_CODES", "Survey", "count_reasons", "most_frequent", "survey_nodes", "wants_unknown_cards"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]

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


@dataclass(frozen=True, slots=True)
class Survey:
    """All nodes of a decision: fitting ones best first, then misses nearest first."""

    numbers: Ints
    """Node numbers in that order."""
    counts: dict[Reason, int]
    """How many nodes were refused for each reason."""
    lacking: Ints
    """By node number: MiB that its cards lack in all; UNREACHABLE where memory alone would not help."""
    fitting: Ints
    """By node number: how many cards fit and may be taken together."""
    speaks: Reason | None
    """The reason of the pod; None: it was placed."""

    @property
    def fitting_nodes(self) -> int:
        """How many nodes fit: they are the first in `numbers`."""
        return len(self.numbers) - sum(self.counts.values())


def survey_nodes(fleet: Fleet, decision: Decision) -> Survey:
    """Order all nodes of the fleet and find the reason that speaks for the pod."""
    lacking, fitting = _lacking_by_node(fleet, decision), _fitting_by_node(fleet, decision)
    live = fleet.live_numbers()
    codes = decision.node_codes[live]
    by_memory = np.isin(codes, _MEMORY_CODES)
    order = np.lexsort(
        (
            fleet.rank()[live],
            np.where(by_memory, -fitting[live], 0),
            np.where(by_memory, lacking[live], 0),
            np.where(codes == FITS, -decision.scores[live], 0),
            _PLACE_OF_CODE[codes],
        )
    )
    return Survey(
        numbers=live[order],
        counts=count_reasons(codes),
        lacking=lacking,
        fitting=fitting,
        speaks=_reason_of_pod(fleet, decision, live, lacking) if decision.placement is None else None,
    )


def count_reasons(codes: Codes) -> dict[Reason, int]:
    """Count the reasons among node codes; FITS is none."""
    counts = np.bincount(codes, minlength=len(Reason) + 1)
    return {reason: int(counts[code]) for code, reason in REASON_OF.items() if counts[code]}


def most_frequent(codes: Codes) -> Reason:
    """Return the reason that most codes give, among equals the one nearest to fitting."""
    counts = count_reasons(codes)
    return min(counts, key=lambda reason: (-counts[reason], _PLACE_OF_CODE[CODE_OF[reason]], reason))


def wants_unknown_cards(fleet: Fleet, ask: Ask) -> bool:
    """Whether the ask names cards none of which is in the fleet: no state of any node could help."""
    wanted = ask.constraints.use_uuids
    return bool(wanted) and not any(uuid in fleet.columns.row_of for uuid in wanted)


def _reason_of_pod(fleet: Fleet, decision: Decision, live: Ints, lacking: Ints) -> Reason:
    """Return the reason of the nearest miss, or else the most frequent one among nodes with GPUs."""
    speakers = live[fleet.node_codes()[live] != CODE_OF[Reason.NO_SUCH_GPU]]
    if not len(speakers):
        return Reason.NO_SUCH_GPU
    if wants_unknown_cards(fleet, decision.ask):
        return Reason.WRONG_UUID
    codes = decision.node_codes[speakers]
    short = np.isin(codes, _SHORT_CODES)
    if short.any():
        fewest = lacking[speakers[short]].min()
        return most_frequent(codes[short & (lacking[speakers] == fewest)])
    if (codes == CODE_OF[Reason.NOT_ENOUGH_GPUS]).any():
        return Reason.NOT_ENOUGH_GPUS
    asked = codes[codes != CODE_OF[Reason.NOT_A_CANDIDATE]]
    return most_frequent(asked if len(asked) else codes)


def _lacking_by_node(fleet: Fleet, decision: Decision) -> Ints:
    """Return how many MiB would have to become free, over all cards that the ask needs of a node."""
    near = np.isin(decision.row_codes, (FITS, *_SHORT_CODES))
    codes = np.where(near, np.int8(FITS), decision.row_codes)
    short = shortfall(decision.sizes, decision.free)
    return _by_node(fleet, chosen_cost(fleet.columns, decision.ask, codes, short), missing=UNREACHABLE)


def _fitting_by_node(fleet: Fleet, decision: Decision) -> Ints:
    return _by_node(fleet, fitting_cards(fleet.columns, decision.ask, decision.row_codes), missing=0)


def _by_node(fleet: Fleet, by_block: Ints, *, missing: int) -> Ints:
    """Move figures of blocks to the numbers of their nodes."""
    result = np.full(fleet.node_count, missing, dtype=np.int64)
    nodes = fleet.columns.node_of_block
    result[nodes[nodes >= 0]] = by_block[nodes >= 0]
    return result
