"""What is counted of a card: the figures of its row, taken from its account and the last look at it."""

import math
from typing import NamedTuple

from vramline.model.gpu import PhysicalGpu
from vramline.model.law import Account
from vramline.model.observation import Observation, Unknown

__all__ = ["COUNTED", "NEVER", "NO_LIMIT", "SEEN", "CardCount", "Look", "figures_of", "look_at"]

NEVER = -math.inf
"""Time of an observation that does not exist."""

NO_LIMIT = 2**31 - 1
"""Slots left on a card whose number of sharers is not limited."""

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


def look_at(gpu: PhysicalGpu, observation: Observation | None) -> Look:
    """Return when and how busy a card was seen; without a used figure it counts as not seen."""
    if observation is None:
        return _NOT_SEEN
    used, busy = observation.used, observation.utilization_percent
    utilization = math.nan if isinstance(busy, Unknown) else busy
    if isinstance(used, Unknown):
        return Look(NEVER, NEVER, math.nan, utilization)
    return Look(observation.at, observation.void_at, 100.0 * used / gpu.total, utilization)
