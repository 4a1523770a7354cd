"""The embedded cluster outside of a run: binding by name, and what it refuses."""

import asyncio

import pytest

from builders import ask, claim, gpu, node, observation, uid_of
from vramline.model.claim import ClaimState
from vramline.model.node import HostRoom, Node
from vramline.model.pod import HostNeeds, Pod, PodPhase
from vramline.model.rules import Rules
from vramline.simulate.cluster import EmbeddedCluster
from vramline.simulate.outcome import Status


class Clock:
    """Time that stands still until it is moved."""

    at = 100.0

    def __call__(self) -> float:
        return self.at


def cluster_of(*nodes: Node, clock: Clock | None = None) -> EmbeddedCluster:
    cluster = EmbeddedCluster(Rules(), clock=clock or Clock())
    for each in nodes:
        cluster.set_node(each)
    return cluster


def pod(name: str = "new", mib: int | None = 8_000, **fields: object) -> Pod:
    key = f"ns/{name}"
    wish = None if mib is None else ask(mib, pod=key)
    return Pod(namespace="ns", name=name, uid=uid_of(key), ask=wish, **fields)  # type: ignore[arg-type]


def bind(cluster: EmbeddedCluster, each: Pod, to: str) -> str:
    return asyncio.run(cluster.bind(each.uid, to)).refused


def test_a_pod_is_bound_to_the_node_that_was_named() -> None:
    cluster = cluster_of(node("n1", gpu("GPU-a")), node("n2", gpu("GPU-b")))
    cluster.add_pod(pod())

    assert bind(cluster, pod(), "n2") == ""
    (held,) = cluster.fleet.ledger.of_pod(pod().uid)
    assert (held.gpu, held.mib, held.state) == ("GPU-b", 8_000, ClaimState.BOUND)
    assert cluster.pods[pod().uid].node == "n2"


def test_a_pod_without_a_gpu_is_bound_too() -> None:
    cluster = cluster_of(node("n1", gpu()))
    cluster.add_pod(pod(mib=None))

    assert bind(cluster, pod(), "n1") == ""
    assert len(cluster.fleet.ledger) == 0


@pytest.mark.parametrize(
    ("each", "to", "refused"),
    [
        pytest.param(pod("other"), "n1", "no pod uid-ns/other", id="an unknown pod"),
        pytest.param(pod(), "n9", "no node n9", id="an unknown node"),
        pytest.param(pod(), "n2", "0/2 nodes fit: 1 InsufficientVram", id="a node that is full"),
    ],
)
def test_a_binding_that_cannot_be_is_refused_with_the_reason(each: Pod, to: str, refused: str) -> None:
    cluster = cluster_of(node("n1", gpu("GPU-a")), node("n2", gpu("GPU-b")))
    cluster.fleet.adopt([claim(30_000, gpu="GPU-b")])
    cluster.add_pod(pod())

    assert refused in bind(cluster, each, to)
    assert cluster.fleet.ledger.of_pod(pod().uid) == ()


def test_a_second_binding_is_refused() -> None:
    cluster = cluster_of(node("n1", gpu()), node("n2"))
    cluster.add_pod(pod())
    bind(cluster, pod(), "n1")

    assert bind(cluster, pod(), "n2") == "ns/new is on n1 already"


def test_the_host_of_a_pod_without_a_gpu_may_refuse_it() -> None:
    cluster = cluster_of(node("n0"), node("n1", host=HostRoom(cpu_milli=500)))
    big = pod(mib=None, host=HostNeeds(cpu_milli=1_000))
    cluster.add_pod(big)

    assert bind(cluster, big, "n1") == "n1 refuses: InsufficientCpu"


def test_a_promise_left_over_from_an_attempt_does_not_stand_in_the_pods_own_way() -> None:
    cluster = cluster_of(node("n1", gpu()))
    cluster.add_pod(pod(mib=30_000))
    cluster.fleet.adopt([claim(30_000, "ns/new")])

    assert cluster.place(pod().uid).status is Status.BOUND


def test_equal_pods_that_fail_one_after_the_other_share_one_explanation() -> None:
    cluster = cluster_of(node("n1", gpu()))
    for name in ("a", "b"):
        cluster.add_pod(pod(name, 99_000))

    first, second = (cluster.place(uid_of(f"ns/{name}")).explanation for name in ("a", "b"))

    assert first is second


def test_memory_comes_back_when_its_end_is_proved() -> None:
    clock = Clock()
    cluster = cluster_of(node("n1", gpu()), clock=clock)
    cluster.observe("GPU-a", observation(0, at=100.0))
    cluster.add_pod(pod())
    cluster.place(pod().uid)
    cluster.start_pod(pod().uid)
    cluster.delete_pod(pod().uid)
    assert cluster.pods[pod().uid].phase is PodPhase.RELEASING
    cluster.end_pod(pod().uid)

    assert cluster.settle() == []
    clock.at = 101.0
    cluster.observe("GPU-a", observation(0, at=101.0))
    assert [released.claim.pod for released in cluster.settle()] == ["ns/new"]
    assert cluster.fleet.account("GPU-a").free == 32_500


def test_a_pending_pod_that_is_deleted_is_gone() -> None:
    cluster = cluster_of(node("n1", gpu()))
    cluster.add_pod(pod())

    cluster.delete_pod(pod().uid)

    assert dict(cluster.pods) == {}


def test_a_node_that_left_takes_no_pods() -> None:
    cluster = cluster_of(node("n1", gpu("GPU-a")), node("n2", gpu("GPU-b", total=10_000)))
    cluster.remove_node("n1")
    cluster.add_pod(pod(mib=20_000))

    assert cluster.place(pod().uid).reason == "GpuTooSmall"


def test_a_node_that_changes_keeps_its_pods() -> None:
    cluster = cluster_of(node("n1", host=HostRoom(pods=2)))
    for name in ("a", "b"):
        cluster.add_pod(pod(name, None))
        cluster.place(uid_of(f"ns/{name}"))

    cluster.set_node(node("n1", host=HostRoom(pods=2), labels={"changed": "yes"}))
    cluster.add_pod(pod("c", None))

    assert cluster.place(uid_of("ns/c")).reason == "TooManyPods"
