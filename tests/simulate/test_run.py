"""What is adopted, what is placed, in which order, and what is said about the rest."""

import pytest

from simulate.clusters import by_pod, card, node, pod, report, run
from vramline.model.node import NodePool
from vramline.model.reason import Reason
from vramline.simulate.outcome import Status
from vramline.wire.times import read_time


def test_pods_are_placed_by_creation_then_appearance_and_those_without_a_time_last() -> None:
    result = run(
        node(),
        pod("no-time-1", 10_000),
        pod("late", 10_000, at="00:00:09"),
        pod("early-1", 10_000, at="00:00:01"),
        pod("early-2", 10_000, at="00:00:01"),
        pod("no-time-2", 10_000),
    )

    order = [(outcome.pod.name, outcome.status) for outcome in result.outcomes]

    assert order == [
        ("early-1", Status.BOUND),
        ("early-2", Status.BOUND),
        ("late", Status.BOUND),
        ("no-time-1", Status.PENDING),
        ("no-time-2", Status.PENDING),
    ]


def test_finished_pods_hold_nothing_and_are_only_counted() -> None:
    result = run(
        node(),
        pod("done", 30_000, nodeName="n1", status={"phase": "Succeeded"}),
        pod("failed", 30_000, nodeName="n1", status={"phase": "Failed"}),
        pod("never-placed", 30_000, meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        pod("new", 32_000),
    )

    assert [outcome.pod.name for outcome in result.outcomes] == ["new"]
    assert (result.finished, by_pod(result)["new"].status) == (3, Status.BOUND)


def test_a_pod_on_a_node_holds_what_its_annotation_says() -> None:
    there = pod(
        "there", 8_000, nodeName="n1", annotations={"hami.io/vgpu-devices-allocated": "GPU-b,N,8000,0:;"}
    )

    result = run(node(cards=2), report(card("GPU-a"), card("GPU-b")), there)

    outcome = by_pod(result)["there"]
    assert (outcome.status, [share.uuid for share in outcome.gpus]) == (Status.RUNNING, ["GPU-b"])
    assert outcome.warnings == ()


def test_where_nothing_names_the_card_the_engine_assumes_one_and_says_so() -> None:
    result = run(node(cards=2), pod("first", 30_000, nodeName="n1"), pod("second", 30_000, nodeName="n1"))

    found = by_pod(result)

    assert [share.uuid for share in found["first"].gpus] == ["n1/gpu-0"]
    assert [share.uuid for share in found["second"].gpus] == ["n1/gpu-1"]
    assert "nothing says which GPU" in found["first"].warnings[0]


def test_a_pod_that_asks_more_cards_than_its_node_has_is_doubtful() -> None:
    there = pod("pair", 8_000, nodeName="n1", annotations={"gpu-fraction-num-devices": "2"})

    (outcome,) = run(node(), there).outcomes

    assert outcome.warnings == ("asks for 2 GPUs, but n1 has only 1",)


def test_a_pod_on_an_unknown_node_is_rejected_if_it_has_gpus_and_left_out_if_not() -> None:
    result = run(node(), pod("gpu", nodeName="n9"), pod("cpu", None, nodeName="n9"))

    assert [str(problem).split(":")[0] for problem in result.problems] == ["Pod ns/gpu"]
    assert by_pod(result)["gpu"].status is Status.REJECTED
    assert "cpu" not in by_pod(result)
    assert result.warnings == ["1 pods without a GPU are on nodes that are not in the input; left out"]


def test_a_report_alone_is_a_node() -> None:
    result = run(report(card()), pod())

    assert by_pod(result)["p"].node == "n1"
    assert "there is no Node of this name" in result.warnings[0]


def test_a_node_that_advertises_cards_nobody_can_size_is_a_warning_and_gets_no_pods() -> None:
    result = run({**node(), "metadata": {"name": "n1"}}, pod())

    assert result.problems == []
    assert "n1" in result.warnings[0]
    assert by_pod(result)["p"].reason == Reason.UNKNOWN_INVENTORY


def test_a_node_whose_report_is_malformed_is_set_aside_with_it() -> None:
    result = run(node(), report(card(totalMiB=0)), node("n2"), pod())

    assert by_pod(result)["p"].node == "n2"
    assert result.cluster.fleet.node("n1") is None


def test_a_pod_with_a_bad_wish_on_a_node_freezes_it() -> None:
    result = run(
        node(), node("n2"), pod("bad", annotations={"gpu-memory": "8 GB"}, nodeName="n1"), pod("new")
    )

    assert by_pod(result)["bad"].status is Status.REJECTED
    assert by_pod(result)["new"].node == "n2"


def test_an_ended_pod_with_a_bad_wish_freezes_nothing() -> None:
    bad = pod("bad", annotations={"gpu-memory": "8 GB"}, nodeName="n1", status={"phase": "Failed"})

    assert by_pod(run(node(), bad, pod("new")))["new"].node == "n1"


def test_now_is_the_newest_time_in_the_input_but_no_deletion_time() -> None:
    leaving = pod("leaving", nodeName="n1", meta={"deletionTimestamp": "2030-01-01T00:00:00Z"})

    result = run(node(), report(card()), leaving, pod("new", at="00:00:07"))

    assert result.cluster.now() == read_time("2026-01-01T00:00:07Z", subject="", field="")


def test_pods_without_a_gpu_avoid_nodes_with_gpus_and_take_cpu_and_memory() -> None:
    plain = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "z"},
        "status": {"allocatable": {"cpu": "1"}},
    }
    cpu = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]

    result = run(node(), plain, pod("a", None, containers=cpu), pod("b", None, containers=cpu))

    assert [by_pod(result)[name].node for name in ("a", "b")] == ["z", "n1"]


def test_a_pod_without_a_gpu_that_fits_nowhere_lists_why() -> None:
    big = [{"name": "main", "resources": {"requests": {"cpu": "9"}}}]

    result = run(node(allocatable={"cpu": "1"}), pod("a", None, containers=big))

    outcome = by_pod(result)["a"]
    assert (outcome.status, outcome.reason) == (Status.PENDING, Reason.INSUFFICIENT_CPU)
    assert [(line.node, line.fits, line.reason) for line in outcome.nodes] == [
        ("n1", False, "InsufficientCpu")
    ]


@pytest.mark.parametrize(
    ("all_nodes", "bound", "pending"),
    [pytest.param(False, 0, 20, id="nearest misses only"), pytest.param(True, 25, 25, id="every node")],
)
def test_nodes_are_listed_for_pods_that_were_not_placed(all_nodes: bool, bound: int, pending: int) -> None:
    nodes = [node(f"n{number:02d}") for number in range(25)]

    result = run(*nodes, pod("fits"), pod("too-large", 99_000), all_nodes=all_nodes)

    assert len(by_pod(result)["fits"].nodes) == bound
    assert len(by_pod(result)["too-large"].nodes) == pending


def test_every_pending_pod_has_a_reason_and_every_share_of_the_rest_a_node() -> None:
    result = run(node(), *(pod(f"p{number}", 6_000 + number) for number in range(9)))

    for outcome in result.outcomes:
        assert (outcome.node is None) == (outcome.reason is not None) == (not outcome.gpus)


def test_pods_stay_in_the_pool() -> None:
    result = run(
        node("a"),
        node("b", labels={"example.com/pool": "gpu"}),
        pod("one", 30_000),
        pod("two", 30_000),
        pool=NodePool("example.com/pool", "gpu"),
    )

    assert by_pod(result)["one"].node == "b"
    assert "1 NotACandidate" in by_pod(result)["two"].message


def test_decisions_are_shown_while_they_still_hold_and_progress_is_told() -> None:
    seen: list[tuple[str, bool]] = []
    progress: list[tuple[int, int]] = []

    run(
        node(),
        pod("a"),
        pod("b"),
        on_decision=lambda fleet, decision: seen.append(
            (decision.ask.pod, fleet.generation == decision.generation)
        ),
        report=lambda done, total: progress.append((done, total)),
    )

    assert seen == [("ns/a", True), ("ns/b", True)]
    assert progress == [(1, 2), (2, 2)]
