"""Events: one for a pod that waits and why, none for anything else."""

from builders import ask, fleet_of, gpu, node, observation, process
from vramline.decide.engine import decide
from vramline.explain.decision import explain_decision
from vramline.explain.ghosts import Ghost
from vramline.explain.history import DecisionRecord, PodOutcome
from vramline.kube.events import Notice, Severity
from vramline.model.ask import RealtimeMode
from vramline.model.rules import Rules
from vramline.serve.notices import TellingHistory, notice_of, notice_of_ghost, notice_of_warning
from vramline.units import Mib


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


def test_a_pod_that_is_placed_against_the_cards_word_is_told_of() -> None:
    fleet = fleet_of(node("n1", gpu()))
    fleet.observe("GPU-a", observation(30_000, process(30_000)))
    decision = decide(fleet, ask(8_000), Rules(mode=RealtimeMode.WARNING), now=100.0)

    notice = notice_of_warning(decision)

    assert (notice.regarding.kind, notice.reason) == ("Pod", "StrictWouldRefuse")
    assert "StrictWouldRefuse" in notice.note
    assert "8,000" in notice.note


def test_a_ghost_is_told_on_its_node_with_the_process_that_holds_it() -> None:
    ghost = Ghost(node="n1", gpu="GPU-a", pod="ns/p", ended_s=75.0, pids=(4711,), mib=Mib(24_000))

    notice = notice_of_ghost(ghost)

    assert (notice.regarding.kind, notice.regarding.name, notice.reason) == ("Node", "n1", "GhostMemory")
    assert notice.note == "GPU GPU-a: ns/p ended 75 s ago, and process 4711 of it still holds 24,000 MiB"
