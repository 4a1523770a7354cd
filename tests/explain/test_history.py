"""The last decisions: numbered, found by pod, forgotten in order."""

import msgspec

from builders import ask, fleet_of, gpu, node, uid_of
from vramline.decide.engine import decide
from vramline.explain.decision import Explanation, explain_decision
from vramline.explain.history import DecisionRecord, History, PodOutcome
from vramline.model.pod import GpuShare
from vramline.model.rules import Rules
from vramline.units import Mib


def an_explanation() -> Explanation:
    fleet = fleet_of(node("n1", gpu()))
    return explain_decision(fleet, decide(fleet, ask(), Rules(), now=0.0), Rules())


def record(pod: str, *, at: float = 0.0, uid: str = "") -> DecisionRecord:
    return DecisionRecord(
        at=at,
        pod=pod,
        pod_uid=uid or uid_of(pod),
        outcome=PodOutcome.BOUND,
        node="n1",
        gpus=(GpuShare("GPU-a", Mib(8_000)),),
        explanation=an_explanation(),
    )


def test_records_are_numbered_in_the_order_they_come() -> None:
    history = History()

    assert [history.add(record(pod)).id for pod in ("ns/a", "ns/b", "ns/a")] == [1, 2, 3]
    assert [each.id for each in history.all()] == [3, 2, 1]


def test_the_latest_record_of_a_pod_is_found_by_uid_and_by_name() -> None:
    history = History()
    for at, pod in enumerate(("ns/a", "ns/b", "ns/a")):
        history.add(record(pod, at=float(at)))

    assert history.latest("ns/a") == history.latest("uid-ns/a") == history.all()[0]
    assert history.latest("ns/nobody") is None


def test_a_pod_that_was_made_again_is_found_by_name_and_both_by_uid() -> None:
    history = History()
    old, new = history.add(record("ns/a", uid="one")), history.add(record("ns/a", uid="two"))

    assert (history.latest("ns/a"), history.latest("one"), history.latest("two")) == (new, old, new)


def test_the_oldest_record_is_forgotten_first() -> None:
    history = History(capacity=2)
    for pod in ("ns/a", "ns/b", "ns/c"):
        history.add(record(pod))

    assert [each.pod for each in history.all()] == ["ns/c", "ns/b"]
    assert history.latest("ns/a") is None
    assert len(history) == 2


def test_forgetting_an_old_record_keeps_the_newer_one_of_the_same_pod() -> None:
    history = History(capacity=2)
    for pod in ("ns/a", "ns/a", "ns/b"):
        history.add(record(pod))
    latest = history.latest("ns/a")

    assert latest is not None
    assert latest.id == 2


def test_a_record_survives_json() -> None:
    kept = History().add(record("ns/a"))

    assert msgspec.json.decode(msgspec.json.encode(kept), type=DecisionRecord) == kept


def test_a_record_that_is_added_for_later_is_written_once_and_only_when_asked_for() -> None:
    history, written = History(), []

    def write() -> DecisionRecord:
        written.append("ns/a")
        return record("ns/a")

    history.add_later("ns/a", uid_of("ns/a"), write)
    history.add(record("ns/b"))

    assert [each.id for each in history.newest(1)] == [2]
    assert written == []
    assert history.latest("ns/a") == history.of_pod("ns/a")[0] == history.all()[1]
    assert written == ["ns/a"]
