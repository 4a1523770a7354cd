from typing import Any

import pytest

import builders
from scheduler.worlds import NOW, Door, cluster_of, pending, pod_body
from vramline.model.claim import ClaimState
from vramline.model.gpu import Health
from vramline.model.node import HostRoom, NodeProblem, ProblemKind
from vramline.model.observation import Observation
from vramline.model.pod import HostNeeds, PodPhase
from vramline.simulate.cluster import EmbeddedCluster


def seen(used: int = 0, *processes: Any) -> Observation:
    return builders.observation(used, *processes, at=NOW - 1)


def mixed_cluster() -> EmbeddedCluster:
    """n1 fits, n2 is full, n3 is too small, n4 has no GPU."""
    cluster = cluster_of(
        builders.node("n1", builders.gpu("GPU-a")),
        builders.node("n2", builders.gpu("GPU-b")),
        builders.node("n3", builders.gpu("GPU-c", 4_000)),
        builders.node("n4"),
        GPU_a=seen(),
        GPU_b=seen(),
        GPU_c=seen(),
    )
    cluster.fleet.adopt([builders.claim(30_000, "ns/big", gpu="GPU-b")])
    return cluster


def ask_filter(cluster: EmbeddedCluster, pod: dict[str, Any], *names: str) -> dict[str, Any]:
    answer = Door(cluster).post("/filter", {"Pod": pod, "Nodes": None, "NodeNames": list(names)})
    assert answer.status_code == 200
    result: dict[str, Any] = answer.json()
    return result


# ── filter ───────────────────────────────────────────────────────────────────────────────────────────


def test_filter_returns_every_node_that_fits_and_sorts_the_others_by_whether_preemption_may_help() -> None:
    result = ask_filter(mixed_cluster(), pod_body(8_000), "n4", "n3", "n2", "n1")

    assert result == {
        "Nodes": None,
        "NodeNames": ["n1"],
        "FailedNodes": {"n2": "InsufficientVram: not enough VRAM is free"},
        "FailedAndUnresolvableNodes": {
            "n3": "GpuTooSmall: not even an empty GPU could promise it",
            "n4": "NoSuchGpu: no GPU",
        },
        "Error": "",
    }


def test_filter_answers_about_the_nodes_it_was_asked_about_and_no_others() -> None:
    result = ask_filter(mixed_cluster(), pod_body(2_000), "n3", "n2")

    assert result["NodeNames"] == ["n3", "n2"]


def test_filter_says_of_a_node_it_does_not_know_that_nothing_helps() -> None:
    result = ask_filter(mixed_cluster(), pod_body(8_000), "n1", "elsewhere")

    assert result["NodeNames"] == ["n1"]
    assert result["FailedAndUnresolvableNodes"] == {"elsewhere": "NotACandidate: the node is not known here"}


def test_filter_hands_full_objects_back_as_they_came() -> None:
    nodes = [{"metadata": {"name": name, "x": 1}, "y": [2]} for name in ("n1", "n2")]

    answer = Door(mixed_cluster()).post("/filter", {"pod": pod_body(8_000), "nodes": {"items": nodes}}).json()

    assert answer["Nodes"] == {"items": [nodes[0]]}
    assert answer["NodeNames"] is None


def test_a_pod_without_a_gpu_request_fits_everywhere() -> None:
    result = ask_filter(mixed_cluster(), pod_body(None), "n2", "n4", "elsewhere")

    assert result["NodeNames"] == ["n2", "n4", "elsewhere"]


def test_a_pod_whose_request_is_wrong_comes_back_as_an_error_not_as_a_status() -> None:
    result = ask_filter(mixed_cluster(), pod_body("8 GB"), "n1")

    assert result["NodeNames"] is None
    assert result["Error"].startswith("InvalidRequest: Pod ns/new: annotation vramline.io/vram")


@pytest.mark.parametrize(
    ("cards", "wish", "resolvable"),
    [
        pytest.param([builders.gpu("GPU-x", 9_000)], {}, True, id="memory is claimed"),
        pytest.param([builders.gpu("GPU-x", slots=1)], {}, True, id="every slot is taken"),
        pytest.param([builders.gpu("GPU-x", 5_000)], {}, False, id="the card is too small"),
        pytest.param(
            [builders.gpu("GPU-x", 5_000), builders.gpu("GPU-y", 9_000)],
            {"gpus": 2},
            False,
            id="two, one small",
        ),
        pytest.param(
            [builders.gpu("GPU-x", 9_000), builders.gpu("GPU-y", 9_000)], {"gpus": 2}, True, id="two would do"
        ),
        pytest.param([builders.gpu("GPU-x", 9_000)], {"gpus": 2}, False, id="there are not two"),
        pytest.param([builders.gpu("GPU-x", health=Health.UNHEALTHY)], {}, False, id="unhealthy"),
        pytest.param([builders.gpu("GPU-x", cordoned=True)], {}, False, id="cordoned"),
        pytest.param([builders.gpu("GPU-x", mig=True)], {}, False, id="partitioned"),
        pytest.param([builders.gpu("GPU-x", model="T4")], {"model": "h100"}, False, id="wrong model"),
        pytest.param([builders.gpu("GPU-x")], {"uuid": "GPU-other"}, False, id="wrong UUID"),
    ],
)
def test_preemption_may_help_exactly_where_emptied_cards_would_do(
    cards: list[Any], wish: dict[str, Any], resolvable: bool
) -> None:
    cluster = cluster_of(builders.node("n", *cards))
    cluster.fleet.adopt([builders.claim(4_000, "ns/here", gpu=card.uuid) for card in cards])
    pod = pod_body(8_000)
    told = pod["metadata"]["annotations"]
    told["vramline.io/gpus"] = str(wish.get("gpus", 1))
    if "model" in wish:
        told["nvidia.com/use-gputype"] = wish["model"]
    if "uuid" in wish:
        told["nvidia.com/use-gpuuuid"] = wish["uuid"]

    result = ask_filter(cluster, pod, "n")

    assert result["NodeNames"] == []
    assert ("n" in result["FailedNodes"]) is resolvable
    assert ("n" in result["FailedAndUnresolvableNodes"]) is not resolvable


def test_a_node_with_a_problem_is_beyond_help() -> None:
    problem = NodeProblem(ProblemKind.INVENTORY_CONFLICT, "labels say 2 cards, the report 1")
    cluster = cluster_of(builders.node("n", builders.gpu(), problem=problem))

    result = ask_filter(cluster, pod_body(), "n")

    assert list(result["FailedAndUnresolvableNodes"]) == ["n"]


def test_a_host_without_cpu_may_be_helped_by_preemption() -> None:
    cluster = cluster_of(builders.node("n", builders.gpu(), host=HostRoom(cpu_milli=100)))
    pod = pod_body()
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}

    assert ask_filter(cluster, pod, "n")["FailedNodes"] == {"n": "InsufficientCpu: not enough CPU"}


def test_a_filter_that_finds_nothing_is_recorded_as_a_decision() -> None:
    door = Door(mixed_cluster())

    door.post("/filter", {"Pod": pod_body(8_000), "NodeNames": ["n2"]})

    (record,) = door.history.all()
    assert (record.pod, record.outcome, record.explanation.reason) == (
        "ns/new",
        "Pending",
        "InsufficientVram",
    )


# ── prioritize ───────────────────────────────────────────────────────────────────────────────────────


def test_only_the_node_that_decide_would_pick_gets_the_full_score() -> None:
    cluster = cluster_of(
        *(
            builders.node(f"n{i}", builders.gpu(f"GPU-{i}", total))
            for i, total in enumerate((40_000, 9_000, 9_000, 20_000))
        ),
        GPU_0=seen(),
        GPU_1=seen(),
        GPU_2=seen(),
        GPU_3=seen(),
    )

    answer = Door(cluster).post(
        "/prioritize", {"Pod": pod_body(8_000), "NodeNames": ["n0", "n2", "n1", "n3"]}
    )

    assert answer.json() == [
        {"Host": "n0", "Score": 0},
        {"Host": "n2", "Score": 9},
        {"Host": "n1", "Score": 10},
        {"Host": "n3", "Score": 5},
    ]


def test_a_node_that_does_not_fit_scores_nothing() -> None:
    answer = Door(mixed_cluster()).post(
        "/prioritize", {"Pod": pod_body(8_000), "NodeNames": ["n1", "n2", "elsewhere"]}
    )

    assert [each["Score"] for each in answer.json()] == [10, 0, 0]


def test_nodes_are_all_the_same_to_a_pod_without_a_gpu_request() -> None:
    answer = Door(mixed_cluster()).post("/prioritize", {"Pod": pod_body(None), "NodeNames": ["n1", "n2"]})

    assert answer.json() == [{"Host": "n1", "Score": 0}, {"Host": "n2", "Score": 0}]


# ── bind ─────────────────────────────────────────────────────────────────────────────────────────────


def bind(door: Door, node: str, **changes: str) -> str:
    names = {"PodName": "new", "PodNamespace": "ns", "PodUID": builders.uid_of("ns/new"), "Node": node}
    answer = door.post("/bind", names | changes)
    assert answer.status_code == 200
    error: str = answer.json()["Error"]
    return error


def test_bind_claims_the_cards_and_binds_the_pod() -> None:
    cluster = mixed_cluster()
    pod = pending(cluster, builders.ask(8_000))

    assert bind(Door(cluster), "n1") == ""

    (claim,) = cluster.fleet.ledger.of_pod(pod.uid)
    assert (claim.gpu, claim.mib, claim.state) == ("GPU-a", 8_000, ClaimState.BOUND)
    assert (cluster.pods[pod.uid].phase, cluster.pods[pod.uid].node) == (PodPhase.BOUND, "n1")


@pytest.mark.parametrize(
    ("node", "changes", "words"),
    [
        pytest.param("n2", {}, "InsufficientVram", id="does not fit any more"),
        pytest.param("elsewhere", {}, "no node elsewhere", id="unknown node"),
        pytest.param("n1", {"PodUID": "other"}, "no pod ns/new with UID other", id="unknown pod"),
        pytest.param("n1", {"PodName": "old"}, "that is ns/new", id="a UID of another pod"),
    ],
)
def test_what_speaks_against_a_binding_comes_back_as_its_error(
    node: str, changes: dict[str, str], words: str
) -> None:
    cluster = mixed_cluster()
    pod = pending(cluster, builders.ask(8_000))

    assert words in bind(Door(cluster), node, **changes)
    assert not cluster.fleet.ledger.of_pod(pod.uid)


def test_a_pod_is_bound_once() -> None:
    cluster = mixed_cluster()
    pending(cluster, builders.ask(8_000))
    door = Door(cluster)

    assert bind(door, "n1") == ""
    assert "already" in bind(door, "n1")


def test_a_pod_without_a_gpu_request_is_bound_without_a_claim() -> None:
    cluster = mixed_cluster()
    pod = pending(cluster, None, host=HostNeeds(cpu_milli=100))

    assert bind(Door(cluster), "n4") == ""
    assert cluster.pods[pod.uid].node == "n4"


def test_what_changed_between_filter_and_bind_is_told() -> None:
    cluster = mixed_cluster()
    pending(cluster, builders.ask(8_000))
    door = Door(cluster)
    door.post("/filter", {"Pod": pod_body(8_000), "NodeNames": ["n1", "n2"]})
    cluster.observe("GPU-a", builders.observation(5_000, builders.process(5_000), at=NOW))

    bind(door, "n1")

    changed = door.get("/api/v1/pods/ns/new").json()["changed"]
    assert "n1/GPU-a: UnmanagedMemory 0 -> 5000" in changed


def test_a_refused_binding_is_recorded_too() -> None:
    cluster = mixed_cluster()
    pending(cluster, builders.ask(8_000))
    door = Door(cluster)

    bind(door, "n2")

    assert [record.outcome for record in door.history.all()] == ["Pending"]


@pytest.mark.parametrize(
    ("preempts_on", "hint"),
    [
        pytest.param(None, "kube-scheduler was told ahead to try n1 first, and took it", id="a hint"),
        pytest.param("n1", "", id="others were sent away"),
    ],
)
def test_where_others_were_sent_away_nobody_speaks_of_a_hint(preempts_on: str | None, hint: str) -> None:
    cluster = mixed_cluster()
    pod = pending(cluster, builders.ask(8_000), nominated="n1", preempts_on=preempts_on)
    door = Door(cluster)

    assert bind(door, "n1") == ""

    assert door.get(f"/api/v1/pods/{pod.key}").json()["hint"] == hint
