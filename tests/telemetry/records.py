"""Decisions as a history keeps them, for tests of what outlives it."""

from builders import ask, fleet_of, gpu, node, uid_of
from vramline.decide.engine import decide
from vramline.explain.decision import explain_decision
from vramline.explain.history import DecisionRecord, PodOutcome
from vramline.model.pod import GpuShare
from vramline.model.rules import Rules
from vramline.units import Mib

__all__ = ["a_bound", "a_refused"]

_FLEET = fleet_of(node("n1", gpu()))


def a_bound(pod: str, *, at: float, number: int = 0) -> DecisionRecord:
    """A pod was placed."""
    decision = decide(_FLEET, ask(), Rules(), now=0.0)
    return DecisionRecord(
        id=number,
        at=at,
        pod=pod,
        pod_uid=uid_of(pod),
        outcome=PodOutcome.BOUND,
        node="n1",
        gpus=(GpuShare("GPU-a", Mib(8_000)),),
        explanation=explain_decision(_FLEET, decision, Rules()),
    )


def a_refused(pod: str, *, at: float) -> DecisionRecord:
    """A pod has to wait."""
    decision = decide(_FLEET, ask(10**6), Rules(), now=0.0)
    return DecisionRecord(
        at=at,
        pod=pod,
        pod_uid=uid_of(pod),
        outcome=PodOutcome.PENDING,
        explanation=explain_decision(_FLEET, decision, Rules()),
    )
