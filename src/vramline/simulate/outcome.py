"""What became of one pod in the embedded cluster."""

import enum
from dataclasses import dataclass

from vramline.explain.decision import Explanation
from vramline.model.decision import Decision
from vramline.model.pod import GpuShare, Pod

__all__ = ["Outcome", "Status"]


class Status(enum.StrEnum):
    """Where a pod stands when the run is over."""

    BOUND = "Bound"
    """Placed in this run."""
    PENDING = "Pending"
    REJECTED = "Rejected"
    """Its manifest is wrong; admission would have refused it."""
    RUNNING = "Running"
    """It was there before."""
    RELEASING = "Releasing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One pod's fate, with the decision where one was made."""

    pod: Pod
    status: Status
    node: str | None = None
    gpus: tuple[GpuShare, ...] = ()
    reason: str | None = None
    message: str = ""
    warnings: tuple[str, ...] = ()
    decision: Decision | None = None
    explanation: Explanation | None = None
