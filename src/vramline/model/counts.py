"""What is counted of a card: the figures of its row, taken from its account and the last look at it."""

import math
from collections.abc import Iterable, Sequence
from itertools import chain
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
    "OnCards",
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


class OnCards(NamedTuple):
    """Many cards, and what is on each."""

    gpus: Sequence[PhysicalGpu]
    claims: Sequence[tuple[Claim, ...]]
    seen: Sequence[Observation | None]
    requested: Sequence[int]
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


def count_cards(cards: OnCards, margin: Mib) -> dict[str, npt.NDArray[Any]]:
    """Return by column what `figures_of` and `look_at` say of many cards, by the same law."""
    sums = Sums(*_columns(map(sum_up, cards.claims, cards.seen), len(Sums._fields)))
    used, at, void_at, utilization = _columns(map(_seen_in, cards.seen), len(_NOT_LOOKED), np.float64)
    total, usable, slots, all_cores = _columns(map(_told_of, cards.gpus), 4)
    sharers, cores = _columns(map(_shared_by, cards.claims), 2)
    requested, is_seen = np.array(cards.requested, dtype=np.int64), used != _NOT_TOLD
    unmanaged, _ = balance(used.astype(np.int64), sums, margin, requested, most=np.maximum, least=np.minimum)
    promise, claimed, held = usable - margin, sums.claimed + requested, sums.held + requested
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
        all_cores - cores,
        sharers,
    )
    looks = (
        np.where(is_seen, at, NEVER),
        np.where(is_seen, void_at, NEVER),
        np.where(is_seen, 100.0 * used / total, math.nan),
        utilization,
    )
    return dict(zip((*COUNTED, *SEEN), (*figures, *looks), strict=True))


_NOT_TOLD = -1.0
_NOT_LOOKED = (_NOT_TOLD, NEVER, NEVER, math.nan)
_NOBODY = (0, 0)


def _columns(
    rows: Iterable[tuple[float, ...]], width: int, dtype: npt.DTypeLike = np.int64
) -> npt.NDArray[Any]:
    """Return rows of this width, one column after the other."""
    return np.fromiter(chain.from_iterable(rows), dtype=dtype).reshape(-1, width).T.copy()


def _seen_in(seen: Observation | None) -> tuple[float, ...]:
    """Return used, when, until when, and how busy."""
    if seen is None:
        return _NOT_LOOKED
    used, busy = seen.used, seen.utilization_percent
    return (
        _NOT_TOLD if isinstance(used, Unknown) else used,
        seen.at,
        seen.void_at,
        math.nan if isinstance(busy, Unknown) else busy,
    )


def _told_of(gpu: PhysicalGpu) -> tuple[int, ...]:
    """Return the total, what is usable, the limit of sharers, and the compute that may be promised."""
    total, reserved, slots = gpu.total, gpu.reserved, gpu.slots
    usable = total if isinstance(reserved, Unknown) else total - reserved
    return total, usable, NO_LIMIT if slots is None else slots, gpu.cores


def _shared_by(claims: tuple[Claim, ...]) -> tuple[int, int]:
    """Return how many claims there are on a card, and the compute that they take."""
    return (len(claims), sum([claim.cores for claim in claims])) if claims else _NOBODY
