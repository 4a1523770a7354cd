"""Nodes on which HAMi's device plugin hands out the devices: what it is told, and one pod at a time."""

import asyncio
from random import Random
from typing import Any

import msgspec
import pytest

from kubernetes_builders import container, hami_card, hami_register, node_object, pod_object
from scheduler.memory_store import MemoryStore
from vramline.model.pod import GpuShare
from vramline.model.rules import Rules
from vramline.scheduler.commit import Committer
from vramline.scheduler.live import LiveState
from vramline.units import Mib
from vramline.wire import keys
from vramline.wire.hami import ContainerDevice, decode_devices, hand_over
from vramline.wire.kubernetes import PodObject, PodSpec, PodStatus

DEVICES = {"nvidia.com/gpu": "10"}
MIB = {keys.VRAM: "8000"}


class Move:
    """A node that HAMi runs, and a leader that binds pods to it."""

    def __init__(self, *pods: PodObject, **annotations: str) -> None:
        self.store = MemoryStore(Random(1))
        for pod in pods:
            self.store.create_pod(pod)
        self.live = LiveState(Rules(), clock=lambda: 1_000.4)
        told = {**hami_register(hami_card(id="GPU-1")), **annotations}
        self.live.set_node(node_object("n1", annotations=told, allocatable=DEVICES))
        self.store.watch(self.live)
        self.committer = Committer(self.live, self.store, lambda: 1, apart_s=0.0)

    def bind(self, name: str) -> str:
        refused = asyncio.run(self.committer.bind(f"uid-{name}", "n1")).refused
        self.store.deliver(self.live)
        return refused

    def told(self, name: str) -> dict[str, str]:
        """What the pod's annotations tell HAMi."""
        annotations = self.store.pods[f"uid-{name}"].metadata.annotations or {}
        return {key: value for key, value in annotations.items() if key.startswith("hami.io/")}


def pod(name: str, *containers: dict[str, Any], **annotations: str) -> PodObject:
    meta = {"name": name, "uid": f"uid-{name}"}
    return pod_object(*containers, annotations=annotations, meta=meta, status={"phase": "Pending"})


def with_device(name: str, **annotations: str) -> PodObject:
    """A pod whose second container gets its device from kubelet."""
    asks = {"nvidia.com/gpu": "1"}
    return pod(name, container("side"), container("main", limits=asks), **{**MIB, **annotations})


def test_the_plugin_is_told_which_card_to_hand_to_which_container() -> None:
    move = Move(with_device("p"))

    assert move.bind("p") == ""
    assert move.told("p") == {
        keys.HAMI_NODE: "n1",
        keys.HAMI_TIME: "1000",
        keys.HAMI_ALLOCATED: ";GPU-1,NVIDIA,8000,0:;",
        keys.HAMI_TO_ALLOCATE: ";GPU-1,NVIDIA,8000,0:;",
        keys.HAMI_BIND_PHASE: "allocating",
        keys.HAMI_BIND_TIME: "1000",
    }


def test_a_pod_that_gets_no_device_from_kubelet_is_only_counted() -> None:
    move = Move(pod("p", **MIB))

    assert move.bind("p") == ""
    assert move.told("p") == {
        keys.HAMI_NODE: "n1",
        keys.HAMI_TIME: "1000",
        keys.HAMI_ALLOCATED: "GPU-1,NVIDIA,8000,0:;",
    }


def test_elsewhere_nobody_tells_hami_anything() -> None:
    move = Move(with_device("p"))
    labels = {"gpu.count": "1", "gpu.memory": "32600", "gpu.product": "NVIDIA-L40S"}
    move.live.set_node(node_object("n1", labels=labels, allocatable=DEVICES))

    assert move.bind("p") == ""
    assert move.told("p") == {}


def test_the_next_pod_waits_until_the_plugin_has_handed_out_the_devices_of_the_first() -> None:
    move = Move(with_device("first"), with_device("second"), pod("without", **MIB))
    move.bind("first")

    assert move.bind("second") == "HAMi's device plugin on n1 has yet to hand out the devices of ns/first"
    assert move.bind("without") == "", "who needs no device needs not wait"

    first = with_device("first", **{**move.told("first"), keys.HAMI_BIND_PHASE: "success"})
    move.live.set_pod(on_node(first, move.store.version + 1))
    assert (
        move.bind("second")
        == "HAMi's device plugin on n1 may take ns/first, which has not started, for this pod"
    )

    move.live.set_pod(on_node(first, move.store.version + 2, phase="Running"))
    assert move.bind("second") == ""


def test_a_pod_that_was_deleted_before_it_started_is_waited_for_too() -> None:
    gone = with_device("gone", **{keys.HAMI_BIND_PHASE: "success"})
    meta = msgspec.structs.replace(gone.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    move = Move(with_device("ours"))
    move.live.set_pod(on_node(msgspec.structs.replace(gone, metadata=meta), move.store.version + 1))

    assert "may take ns/gone" in move.bind("ours")


def test_of_two_at_once_one_is_bound() -> None:
    move = Move(with_device("a"), with_device("b"))

    async def both() -> list[str]:
        outcomes = await asyncio.gather(*(move.committer.bind(f"uid-{name}", "n1") for name in "ab"))
        return [outcome.refused for outcome in outcomes]

    assert sorted(map(bool, asyncio.run(both()))) == [False, True]


@pytest.mark.parametrize(
    ("lock", "names"),
    [
        pytest.param("2026-01-01T00:00:00Z,ns,theirs", "ns/theirs", id="a-pod-that-hami-binds"),
        pytest.param("2026-01-01T00:00:00Z,ns,gone", "ns/gone", id="a-pod-that-is-gone"),
        pytest.param("2026-01-01T00:00:00Z,ns", "2026-01-01T00:00:00Z,ns", id="nobody-can-read-it"),
    ],
)
def test_a_node_whose_lock_names_another_pod_is_left_alone(lock: str, names: str) -> None:
    theirs = with_device("theirs", **{keys.HAMI_BIND_PHASE: "allocating"})
    move = Move(theirs, with_device("ours"), pod("without", **MIB), **{keys.HAMI_LOCK: lock})

    assert move.bind("ours").startswith(f"HAMi's lock on n1 (hami.io/mutex.lock) names {names}")
    assert move.bind("without") == "", "who needs no device needs not wait"


@pytest.mark.parametrize("lock", ["2026-01-01T00:00:00Z,ns,ours", "2026-01-01T00:00:00Z"])
def test_a_lock_that_names_this_pod_or_none_is_no_hindrance(lock: str) -> None:
    assert Move(with_device("ours"), **{keys.HAMI_LOCK: lock}).bind("ours") == ""


def test_several_containers_with_devices_are_refused() -> None:
    asks = {"nvidia.com/gpu": "1"}
    move = Move(pod("p", container("a", limits=asks), container("b", limits=asks)))

    assert move.bind("p").startswith("HAMi's device plugin on n1 can be told the devices of one container")


@pytest.mark.parametrize("gets", [(True,), (False, True), (True, False, False)])
def test_what_is_handed_over_can_be_read_back(gets: tuple[bool, ...]) -> None:
    device = ContainerDevice("GPU-1", "NVIDIA", 8_000, 30)
    told = hand_over("n1", [GpuShare("GPU-1", Mib(8_000), 30)], gets, at=5.9)

    assert decode_devices(told[keys.HAMI_TO_ALLOCATE], subject="Pod") == tuple(
        (device,) if each else () for each in gets
    )


def on_node(document: PodObject, version: int, *, phase: str = "Pending") -> PodObject:
    meta = msgspec.structs.replace(document.metadata, resource_version=str(version))
    spec = msgspec.structs.replace(document.spec or PodSpec(), node_name="n1")
    status = PodStatus(phase=phase)
    return msgspec.structs.replace(document, metadata=meta, spec=spec, status=status)
