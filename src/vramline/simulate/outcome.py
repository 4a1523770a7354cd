"""What became of one pod in the embedded cluster."""

import enum
from dataclasses import dataclass

from vramline.explain.decision import Explanation, SealedDecision
from vramline.explain.figures import Basis
from vramline.explain.lines import NodeLine
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
    refusal: str | None = None
    """The reason of a pod without a decision about GPUs."""
    said: str = ""
    """The same in words."""
    notes: tuple[str, ...] = ()
    """What is to be said of it besides the decision."""
    hosts: tuple[NodeLine, ...] = ()
    """What a pod that wants no GPU met on nodes."""
    basis: Basis | None = None
    """Whether a placement rests on a fresh look at all its cards, or on the books; None: no placement."""
    decision: Decision | None = None
    """Holds arrays of all cards: whoever keeps many outcomes drops it."""
    case: Case | None = None
    """What it was decided on, where somebody wanted that."""
    sealed: SealedDecision | None = None

    @property
    def reason(self) -> str | None:
        """Why it is nowhere; None: it is somewhere, or nobody explained."""
        return self.refusal if self.sealed is None else self.sealed.brief.reason

    @property
    def message(self) -> str:
        """What became of it, in one line."""
        return self.said if self.sealed is None else self.sealed.brief.message

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know."""
        return self.notes if self.sealed is None else (*self.notes, *self.sealed.brief.warnings)

    @property
    def explanation(self) -> Explanation | None:
        """Why; None: nothing was decided."""
        return None if self.sealed is None else self.sealed.explanation

    @property
    def nodes(self) -> tuple[NodeLine, ...]:
        """What the pod met on nodes: the nearest misses of a pod that was not placed, or all."""
        return self.hosts if self.sealed is None else tuple(self.sealed.explanation.nodes)
