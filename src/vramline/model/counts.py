"""What is counted of a card: the figures of its row, taken from its account and the last look at it."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vramline.model.claim import Claim
from vramline.model.gpu import PhysicalGpu
from vramline.model.law import Account, Sums, balance, sum_up
from vramline.model.observation import Observation, Unknown
from vramline.units import Mib

__all__ = [
    "ALL_CORES",
    "COUNTED",
    "NEVER",
    "NO_LIMIT",
    "SEEN",
    "CardCount",
    "Look",
    "OnCard",
    "count_cards",
    "figures_of",
    "is_limited",
    "look_at",
]

NEVER = -math.inf
"""Time of an observation that does not exist."""

NO_LIMIT = 2**31 - 1
"""Slots left on a card whose number of sharers is not limited."""

ALL_CORES = 100
"""Percent of a card's compute."""

COUNTED = (
    *("claimed", "claimed_releasing", "held", "held_releasing", "free_books", "free_observed"),
    *("unmanaged", "slots_left", "cores_left", "sharers"),
)
"""The columns of what `figures_of` returns, in its order."""


class CardCount(NamedTuple):
    """One card, by the books and as it was last seen."""

    row: int
    gpu: PhysicalGpu
    account: Account
    observation: Observation | None
    sharers: int
    """How many claims there are on it."""
    cores: int
    """Compute share that is claimed."""


class OnCard(NamedTuple):
    """One card of many, and what is on it."""

    gpu: PhysicalGpu
    claims: tuple[Claim, ...]
    observation: Observation | None
    requested: int
    """What pods requested of the machine's memory beyond their claims, where that is the card's."""


class Look(NamedTuple):
    """When and how busy a card was seen; NaN where a figure is unknown."""

    observed_at: float
    void_at: float
    used_percent: float
    utilization: float

    @property
    def is_streamed(self) -> bool:
        """Whether it becomes void before it is old."""
        return math.isfinite(self.void_at)


SEEN = Look._fields
"""The columns of a look, in its order."""

_NOT_SEEN = Look(NEVER, NEVER, math.nan, math.nan)


def figures_of(gpu: PhysicalGpu, account: Account, sharers: int, cores: int) -> tuple[int, ...]:
    """Return what the memory law said about a card, and what is left of it besides memory."""
    unmanaged = account.unmanaged
    return (
        account.claimed,
        account.claimed_releasing,
        account.held,
        account.held_releasing,
        account.free_by_books,
        account.free,
        0 if isinstance(unmanaged, Unknown) else unmanaged,
        NO_LIMIT if gpu.slots is None else gpu.slots - sharers,
        gpu.cores - cores,
        sharers,
    )


def is_limited(figures: tuple[int, ...]) -> bool:
    """Whether these figures of a card say that it has no slot left, or less than all of its compute."""
    slots_left, cores_left, _sharers = figures[-3:]
    return slots_left < 1 or cores_left < ALL_CORES


def look_at(gpu: PhysicalGpu, observation: Observation | None) -> Look:
    """Return when and how busy a card was seen; without a used figure it counts as not seen."""
    if observation is None:
        return _NOT_SEEN
    used, busy = observation.used, observation.utilization_percent
    utilization = math.nan if isinstance(busy, Unknown) else busy
    if isinstance(used, Unknown):
        return Look(NEVER, NEVER, math.nan, utilization)
    return Look(observation.at, observation.void_at, 100.0 * used / gpu.total, utilization)


def count_cards(cards: Sequence[OnCard], margin: Mib) -> dict[str, npt.NDArray[Any]]:
    """Return by column what `figures_of` and `look_at` say of many cards, by the same law."""
    sums = Sums(*np.array([sum_up(each.claims, each.observation) for each in cards], dtype=np.int64).T)
    looks = np.array([look_at(each.gpu, each.observation) for each in cards], dtype=np.float64).T
    used = np.array([_used_in(each.observation) for each in cards], dtype=np.int64)
    told = np.array([_told_of(each) for each in cards], dtype=np.int64).T
    promise, requested, slots, sharers, cores = told[0] - margin, *told[1:]
    unmanaged, _ = balance(used, sums, margin, requested, most=np.maximum, least=np.minimum)
    claimed, held, is_seen = sums.claimed + requested, sums.held + requested, used != _NOT_TOLD
    free_books = promise - claimed
    figures = (
        claimed,
        sums.claimed_releasing,
        held,
        sums.held_releasing,
        free_books,
        np.where(is_seen, promise - held - unmanaged, free_books),
        np.where(is_seen, unmanaged, 0),
        np.where(slots == NO_LIMIT, NO_LIMIT, slots - sharers),
        cores,
        sharers,
    )
    return dict(zip(COUNTED, figures, strict=True)) | dict(zip(SEEN, looks, strict=True))


_NOT_TOLD = -1


def _used_in(observation: Observation | None) -> int:
    used = _NOT_TOLD if observation is None else observation.used
    return _NOT_TOLD if isinstance(used, Unknown) else used


def _told_of(card: OnCard) -> tuple[int, ...]:
    """Return what is usable, requested, the limit of sharers, how many there are, and cores left."""
    gpu, claims = card.gpu, card.claims
    cores = gpu.cores - sum([claim.cores for claim in claims]) if claims else gpu.cores
    return gpu.usable, card.requested, NO_LIMIT if gpu.slots is None else gpu.slots, len(claims), cores
