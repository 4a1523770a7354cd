"""What became of one pod in the embedded cluster."""

import enum
from dataclasses import dataclass

from vramline.explain.decision import Explanation, NodeLine
from vramline.explain.figures import Basis
from vramline.explain.replay import Case
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
    nodes: tuple[NodeLine, ...] = ()
    """What the pod met on nodes: the nearest misses of a pod that was not placed, or all."""
    basis: Basis | None = None
    """Whether a placement rests on a fresh look at all its cards, or on the books; None: no placement."""
    decision: Decision | None = None
    """Holds arrays of all cards: whoever keeps many outcomes drops it."""
    explanation: Explanation | None = None
    case: Case | None = None
    """What it was decided on, where somebody wanted that."""
