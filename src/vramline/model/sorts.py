"""What only a card itself decides of its row, whatever is on it."""

from operator import attrgetter
from typing import NamedTuple

from vramline.model.gpu import Health, PhysicalGpu
from vramline.model.reason import CODE_OF, FITS, Reason

__all__ = ["OF_SORT", "CardKind", "CardSort", "static_code"]


class CardKind(NamedTuple):
    """What cards have in common to which every ask means the same."""

    promise: int
    slots: int
    model: str


class CardSort(NamedTuple):
    """The columns that follow from the card alone."""

    promise: int
    kind: int
    slots: int
    unified: bool
    numa: int
    model: int
    static_code: int


OF_SORT = attrgetter(*("total", "reserved", "slots", "model", "numa", "unified", "health", "cordoned", "mig"))
"""All of a card that its `CardSort` follows from."""


def static_code(gpu: PhysicalGpu) -> int:
    """Return FITS, or why no ask at all may use a card."""
    if gpu.mig:
        return CODE_OF[Reason.MIG_PARTITIONED]
    if gpu.health is not Health.HEALTHY:
        return CODE_OF[Reason.UNHEALTHY_GPU]
    return CODE_OF[Reason.CORDONED_GPU] if gpu.cordoned else FITS
