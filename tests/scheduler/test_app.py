from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
from house.tree import ROOT
from scheduler.worlds import NOW, Door, cluster_of, pending, pod_body
from vramline.model.claim import ClaimState
from vramline.model.pod import HostNeeds
from vramline.model.reason import CODE_OF
from vramline.scheduler import app as app_module
from vramline.scheduler.refusals import REFUSALS
from vramline.simulate.cluster import EmbeddedCluster

POSTS = ("/filter", "/prioritize", "/bind", "/preempt", "/api/v1/whatif")
GETS = (
    "/api/v1/gpus",
    "/api/v1/nodes",
    "/api/v1/pods",
    "/api/v1/decisions",
    "/api/dashboard/cluster-gpu-status",
    "/snapshot",
    "/healthz",
    "/readyz",
)


def small_cluster() -> EmbeddedCluster:
    return cluster_of(
        builders.node("n1", builders.gpu("GPU-a", slots=4), builders.gpu("GPU-b"), advertised=8),
        builders.node("n2"),
        GPU_a=builders.observation(6_000, builders.process(6_000), at=NOW - 1),
    )


def busy_door() -> Door:
    """A cluster in which one pod is bound, one pends, and one that is gone still holds memory."""
    door = Door(small_cluster())
    cluster = door.cluster
    bound = pending(cluster, builders.ask(10_000), name="bound", priority=5)
    door.post(
        "/bind", {"PodName": "bound", "PodNamespace": "ns", "PodUID": bound.uid, "Node": "n1"}
    ).raise_for_status()
    pending(cluster, builders.ask(90_000), name="big")
    pending(cluster, None, name="plain", host=HostNeeds(cpu_milli=10))
    cluster.fleet.adopt(
        [
            builders.claim(
                1_000, "ns/ended", gpu="GPU-b", state=ClaimState.RELEASING, started_at=1.0, ended_at=2.0
            )
        ]
    )
    return door


# ── bad requests ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        pytest.param("/filter", b"", "is not JSON", id="nothing"),
        pytest.param("/filter", b"\x00\xff", "is not JSON", id="binary"),
        pytest.param("/filter", b'{"Pod":', "is not JSON", id="cut off"),
        pytest.param("/filter", b"[" * 50_000, "is not JSON", id="nested without end"),
        pytest.param("/filter", b"null", "must be a mapping", id="null"),
        pytest.param("/filter", {"NodeNames": ["n1"]}, "Pod: is missing", id="no pod"),
        pytest.param("/filter", {"Pod": {}, "NodeNames": "n1"}, "NodeNames", id="a text for a list"),
        pytest.param("/prioritize", {"Pod": {}}, "neither NodeNames nor Nodes", id="no nodes"),
        pytest.param(
            "/prioritize", {"Pod": pod_body("8 GB"), "NodeNames": []}, "vramline.io/vram", id="a wrong ask"
        ),
        pytest.param("/prioritize", {"Pod": {"metadata": 7}, "NodeNames": []}, "metadata", id="an odd pod"),
        pytest.param("/bind", {"PodName": "p"}, "PodNamespace", id="half a binding"),
        pytest.param(
            "/preempt", {"Pod": pod_body(), "NodeNameToVictims": 7}, "NodeNameToVictims", id="victims"
        ),
        pytest.param("/api/v1/whatif", {}, "is no question", id="no question"),
        pytest.param("/api/v1/whatif", [], "must be a JSON object", id="a list of questions"),
        pytest.param("/api/v1/whatif", {"pods": 0, "mib": 1}, "pods", id="no pods"),
        pytest.param("/api/v1/whatif", {"pods": 10_000, "mib": 1}, "pods", id="too many pods"),
        pytest.param("/api/v1/whatif", {"pods": 1, "mib": -5}, "mib", id="negative memory"),
        pytest.param("/api/v1/whatif", {"mib": 1.5}, "mib", id="half a MiB"),
        pytest.param("/api/v1/whatif", {"mib": 2**63}, "mib", id="too much memory"),
        pytest.param("/api/v1/whatif", {"mib": 5, "colour": "red"}, "colour", id="an unknown field"),
        pytest.param("/api/v1/whatif", pod_body(None), "asks for no GPU", id="a pod without a GPU"),
        pytest.param(
            "/api/v1/whatif", pod_body("0"), "must be more than 0", id="a pod that asks for nothing"
        ),
    ],
)
def test_a_bad_body_is_refused_with_the_reason(path: str, body: object, words: str) -> None:
    answer = Door(small_cluster()).post(path, body)

    assert answer.status_code == 400
    assert words in answer.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        pytest.param("GET", "/", 404, id="nothing there"),
        pytest.param("GET", "/filter", 405, id="a verb that is posted"),
        pytest.param("POST", "/snapshot", 405, id="a page that is read"),
        pytest.param("GET", "/api/v1/pods/ns/nobody", 404, id="an unknown pod"),
        pytest.param("GET", "/api/v1/pods/%2e%2e/%00", 404, id="an odd name"),
        pytest.param("GET", "/api/v1/decisions?limit=0", 400, id="no decisions"),
        pytest.param("GET", "/api/v1/decisions?limit=many", 400, id="not a number"),
        pytest.param("GET", "/api/v1/decisions?limit=9999999", 400, id="too many"),
    ],
)
def test_a_bad_address_is_refused_in_json(method: str, path: str, status: int) -> None:
    answer = Door(small_cluster()).send(method, path)

    assert answer.status_code == status
    assert list(answer.json()) == ["error"]


def test_a_body_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "MAX_BODY", 10)

    answer = Door(small_cluster()).post("/filter", b" " * 11)

    assert answer.status_code == 413


TEXTS = st.text("n1-GPU/ \x00é٣", max_size=6)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.sampled_from(["8000", "8Gi", "n1", "0.5", "strict", builders.uid_of("ns/big")])
)
FIELDS = st.sampled_from(
    [
        "Pod",
        "pod",
        "Nodes",
        "NodeNames",
        "NodeNameToVictims",
        "NodeNameToMetaVictims",
        "PodName",
        "PodNamespace",
        "PodUID",
        "Node",
        "Pods",
        "UID",
        "items",
        "metadata",
        "name",
        "namespace",
        "uid",
        "annotations",
        "labels",
        "spec",
        "containers",
        "resources",
        "limits",
        "requests",
        "nodeName",
        "status",
        "phase",
        "deletionTimestamp",
        "pods",
        "mib",
        "gpus",
        "vramline.io/vram",
        "vramline.io/gpus",
        "gpu-memory",
        "gpu-fraction",
        "nvidia.com/gpu",
        "nvidia.com/gpumem",
        "nvidia.com/use-gputype",
        "affinity",
        "tolerations",
        "priority",
        "n1",
    ]
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS | TEXTS, inner, max_size=5),
    max_leaves=20,
)
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": TEXTS, "annotations": st.dictionaries(FIELDS, LEAVES, max_size=3)}
        ),
        "spec": st.dictionaries(FIELDS, JSON, max_size=3),
    }
)
CALLS = st.fixed_dictionaries(
    {"Pod": PODS | JSON},
    optional={
        "NodeNames": st.lists(st.sampled_from(["n1", "n2", "n1"]) | TEXTS, max_size=4) | JSON,
        "NodeNameToMetaVictims": st.dictionaries(TEXTS | st.just("n1"), JSON, max_size=2),
    },
)


@given(path=st.sampled_from(POSTS), body=JSON | CALLS | PODS)
def test_no_document_whatever_makes_the_server_fail(path: str, body: object) -> None:
    answer = DOOR.post(path, body)

    assert answer.status_code in {200, 400}
    assert msgspec.json.decode(answer.content) is not None


@given(path=st.sampled_from(POSTS), body=st.binary(max_size=200))
def test_no_bytes_whatever_make_the_server_fail(path: str, body: bytes) -> None:
    assert DOOR.post(path, body).status_code in {200, 400}


DOOR = Door(small_cluster())


# ── the API ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", GETS)
def test_every_page_answers_in_json(path: str) -> None:
    answer = busy_door().get(path)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert isinstance(answer.json(), dict)


@pytest.mark.parametrize("path", [*GETS, "/api/v1/pods/ns/big"])
def test_reading_changes_nothing(path: str) -> None:
    door = busy_door()
    before = (door.cluster.fleet.generation, len(door.history))

    door.get(path)

    assert (door.cluster.fleet.generation, len(door.history)) == before


def test_gpus_obey_the_memory_law() -> None:
    cards = busy_door().get("/api/v1/gpus").json()["gpus"]

    assert [card["uuid"] for card in cards] == ["GPU-a", "GPU-b"]
    for card in cards:
        taken = card["margin_mib"] + card["held_mib"] + (card["unmanaged_mib"] or 0)
        assert card["free_mib"] == card["usable_mib"] - taken
    assert cards[1]["unmanaged_mib"] is None


def test_nodes_tell_physical_beside_advertised() -> None:
    nodes = busy_door().get("/api/v1/nodes").json()["nodes"]

    assert [(node["node"], node["physical"], node["advertised"]) for node in nodes] == [
        ("n1", 2, 8),
        ("n2", 0, None),
    ]


def test_pods_tell_where_they_are_what_they_ask_and_why_they_wait() -> None:
    door = busy_door()
    door.post("/filter", {"Pod": _body_of("big", 90_000), "NodeNames": ["n1"]})

    pods = {view["pod"]: view for view in door.get("/api/v1/pods").json()["pods"]}

    assert {key: view["status"] for key, view in pods.items()} == {
        "ns/big": "Pending",
        "ns/bound": "Bound",
        "ns/ended": "Releasing",
        "ns/plain": "Pending",
    }
    assert pods["ns/bound"]["gpus"] == [{"uuid": "GPU-a", "mib": 10_000, "cores": 0}]
    assert (pods["ns/big"]["asks"], pods["ns/big"]["reason"]) == ("90,000 MiB", "GpuTooSmall")
    assert pods["ns/plain"]["asks"] == ""


def test_a_pending_pod_is_explained_as_of_now_with_what_would_help() -> None:
    story = busy_door().get("/api/v1/pods/ns/big").json()

    assert story["now"]["reason"] == "GpuTooSmall"
    assert any("if the ask is ≤" in each["sentence"] for each in story["now"]["counterfactuals"])
    assert story["decision"] is None


def test_a_bound_pod_is_explained_by_its_decision_and_its_cards() -> None:
    story = busy_door().get("/api/v1/pods/ns/bound").json()

    assert story["now"] is None
    assert (story["decision"]["outcome"], story["decision"]["node"]) == ("Bound", "n1")
    assert [card["uuid"] for card in story["cards"]] == ["GPU-a"]


def test_a_pod_that_is_gone_is_still_known_by_its_decisions() -> None:
    door = Door(small_cluster())
    door.post("/filter", {"Pod": _body_of("gone", 90_000), "NodeNames": ["n1"]})

    story = door.get("/api/v1/pods/ns/gone").json()

    assert story["pod"]["status"] == "Gone"
    assert story["decision"]["explanation"]["reason"] == "GpuTooSmall"


def test_decisions_come_newest_first_and_no_more_than_asked_for() -> None:
    door = Door(small_cluster())
    for name in ("one", "two", "three"):
        door.post("/filter", {"Pod": _body_of(name, 90_000), "NodeNames": ["n1"]})

    decisions = door.get("/api/v1/decisions?limit=2").json()["decisions"]

    assert [record["pod"] for record in decisions] == ["ns/three", "ns/two"]


def test_a_cluster_without_nodes_is_healthy_but_not_ready() -> None:
    door = Door(cluster_of())

    assert door.get("/healthz").status_code == 200
    assert door.get("/readyz").status_code == 503


@pytest.mark.parametrize("path", [*POSTS, *GETS, "/api/v1/pods/{namespace}/{name}"])
def test_every_address_is_in_the_manual(path: str) -> None:
    method = "POST" if path in POSTS else "GET"

    assert f"| `{method} {path}` |" in (ROOT / "docs" / "http.md").read_text(encoding="utf-8")


def test_every_reason_has_a_text_for_kube_scheduler() -> None:
    assert set(REFUSALS) == set(CODE_OF.values())
    assert all(len(text) < 80 for text in REFUSALS.values())


def _body_of(name: str, mib: int) -> dict[str, Any]:
    body = pod_body(mib)
    body["metadata"] |= {"name": name, "uid": builders.uid_of(f"ns/{name}")}
    return body
