"""Events: one for a pod that waits and why, none for anything else."""

from builders import ask, fleet_of, gpu, node
from vramline.decide.engine import decide
from vramline.explain.decision import explain_decision
from vramline.explain.history import DecisionRecord, PodOutcome
from vramline.kube.events import Notice, Severity
from vramline.model.rules import Rules
from vramline.serve.notices import TellingHistory, notice_of


def record(mib: int, outcome: PodOutcome) -> DecisionRecord:
    """A decision about a pod on a node with one card of 32,600 MiB."""
    fleet = fleet_of(node("n1", gpu()))
    explanation = explain_decision(fleet, decide(fleet, ask(mib), Rules(), now=0.0), Rules())
    return DecisionRecord(at=0.0, pod="team/llm-0", pod_uid="u1", outcome=outcome, explanation=explanation)


def test_a_pod_that_waits_is_told_of_with_the_closest_card() -> None:
    notice = notice_of(record(90_000, PodOutcome.PENDING))

    assert notice is not None
    assert (notice.reason, notice.severity) == ("GpuTooSmall", Severity.WARNING)
    assert (notice.regarding.namespace, notice.regarding.name, notice.regarding.uid) == (
        "team",
        "llm-0",
        "u1",
    )
    assert "closest n1/" in notice.note


def test_a_pod_that_is_bound_is_not_told_of() -> None:
    assert notice_of(record(8_000, PodOutcome.BOUND)) is None


def test_a_bind_that_failed_for_no_reason_of_ours_is_not_told_of() -> None:
    assert notice_of(record(8_000, PodOutcome.PENDING)) is None


def test_a_history_tells_and_remembers() -> None:
    told: list[Notice] = []
    history = TellingHistory(told.append)

    history.add(record(90_000, PodOutcome.PENDING))
    history.add(record(8_000, PodOutcome.BOUND))

    assert len(history) == 2
    assert [notice.reason for notice in told] == ["GpuTooSmall"]
