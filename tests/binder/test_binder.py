"""Binds with reservations, one at a time: what is held, what is told, what is refused."""

import asyncio
from random import Random

import msgspec
import pytest

from binder.memory_world import (
    CARD_MIB,
    NODES,
    OPTIONS,
    Replica,
    World,
    device_pod,
    shared_pod,
    stranger,
    whole_pod,
)
from kubernetes_builders import pod_object
from vramline.binder.binder import is_held_by_reservations
from vramline.explain.history import History
from vramline.model.gpu import PhysicalGpu
from vramline.model.node import Node
from vramline.model.observation import GpuProcess, Observation
from vramline.scheduler.cluster import RealCluster
from vramline.scheduler.journal import Journal
from vramline.scheduler.verbs import filter_nodes
from vramline.units import Mib
from vramline.wire import keys
from vramline.wire.bind_request_v1alpha1 import BindPhase, BindRequest
from vramline.wire.extender_v1 import ExtenderArgs, ExtenderFilterResult
from vramline.wire.kubernetes import PodObject

FULL = CARD_MIB - 100


def world_of(*pods: PodObject, seed: int = 1) -> tuple[World, Replica]:
    world = World(Random(seed))
    for pod in pods:
        world.create_pod(pod)
    return world, Replica(world)


def card_of(world: World, uid: str) -> str:
    return (world.pods[uid].metadata.annotations or {}).get(keys.VISIBLE_DEVICES, "")


def held(world: World) -> list[str]:
    return sorted((pod.metadata.annotations or {}).get(keys.RESERVED_GPU, "") for pod in world.reservations())


def request_of(world: World, name: str) -> BindRequest:
    return world.requests["ns", name].request


@pytest.mark.parametrize("seed", range(6))
def test_a_pod_gets_the_card_that_kubelet_gave_to_its_reservation(seed: int) -> None:
    world, replica = world_of(shared_pod(1), seed=seed)

    assert asyncio.run(replica.bind("uid-1", "n1")) == ""

    assert held(world) == [card_of(world, "uid-1")]
    (claim,) = world.ledgers["n1"].claims
    assert claim.gpu == card_of(world, "uid-1")


def test_the_request_says_what_was_planned_and_what_was_given() -> None:
    world, replica = world_of(shared_pod(1))
    asyncio.run(replica.bind("uid-1", "n1"))

    request = request_of(world, "p1")

    assert (request.phase, request.attempts, request.node) == (BindPhase.SUCCEEDED, 1, "n1")
    assert [share.uuid for share in request.given] == [card_of(world, "uid-1")]
    assert [share.mib for share in request.gpus] == [8_000]


def test_a_further_pod_on_a_held_card_makes_no_other_reservation() -> None:
    world, replica = world_of(shared_pod(1), shared_pod(2))

    async def bind_both() -> None:
        await replica.bind("uid-1", "n1")
        assert await replica.bind("uid-2", "n1") == ""

    asyncio.run(bind_both())

    assert len(world.reservations()) == 1
    assert card_of(world, "uid-2") == card_of(world, "uid-1")
    assert request_of(world, "p2").phase is BindPhase.SUCCEEDED


@pytest.mark.parametrize("seed", range(6))
def test_the_ledger_is_written_once_whichever_card_kubelet_gives(seed: int) -> None:
    world, replica = world_of(shared_pod(1), seed=seed)

    asyncio.run(replica.bind("uid-1", "n1"))

    assert world.writes == 2  # the claim and the binding; requests and pods are not counted here


def test_two_pods_at_once_share_one_reservation() -> None:
    world, replica = world_of(shared_pod(1), shared_pod(2))

    async def bind_both() -> list[str]:
        tasks = [asyncio.create_task(replica.committer.bind(f"uid-{n}", "n1")) for n in (1, 2)]
        for _ in range(100):  # kubelet takes its time
            await asyncio.sleep(0)
            replica.hear()
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            world.kubelets_act()
            replica.hear()
        return [task.result().refused for task in tasks]

    assert asyncio.run(bind_both()) == ["", ""]
    assert len(world.reservations()) == 1


@pytest.mark.parametrize("seed", range(4))
def test_a_node_is_filled_with_whole_and_shared_cards_each_held_by_itself(seed: int) -> None:
    world, replica = world_of(whole_pod(1), shared_pod(1, FULL), shared_pod(2, FULL), seed=seed)

    async def bind_all() -> list[str]:
        return [await replica.bind(uid, "n1") for uid in ("uid-w1", "uid-1", "uid-2")]

    assert asyncio.run(bind_all()) == ["", "", ""]
    assert world.free_devices("n1") == []
    assert held(world) == sorted(card_of(world, uid) for uid in ("uid-w1", "uid-1", "uid-2"))


@pytest.mark.parametrize("seed", range(6))
def test_a_whole_card_of_ours_is_never_given_to_a_stranger(seed: int) -> None:
    """kubelet does not know which card a pod was told; the card is taken out of its hands before."""
    world, replica = world_of(whole_pod(1), seed=seed)
    assert asyncio.run(replica.bind("uid-w1", "n1")) == ""

    for number in range(NODES["n1"]):
        world.create_pod(stranger(number, "n1"))
        world.kubelets_act()

    given = {world.given[uid] for uid in ("uid-s0", "uid-s1", "uid-s2") if uid in world.given}
    assert given == world.devices("n1") - {card_of(world, "uid-w1")}


def test_every_card_of_a_pod_with_several_is_held() -> None:
    world, replica = world_of(whole_pod(1, gpus=2))

    assert asyncio.run(replica.bind("uid-w1", "n1")) == ""

    assert held(world) == sorted(card_of(world, "uid-w1").split(","))
    assert len(held(world)) == 2


def test_a_pod_for_which_kubelet_would_choose_the_card_is_refused_with_the_reason() -> None:
    world, replica = world_of(device_pod(1))

    refused = asyncio.run(replica.bind("uid-s1", "n1"))
    answer = asyncio.run(filtered(replica, device_pod(1)))

    assert refused.startswith("ns/s1 asks kubelet for devices itself, and kubelet on n1 would choose them")
    assert answer.failed_and_unresolvable_nodes["n1"].startswith("KubeletChooses: kubelet would choose")
    assert answer.node_names == ["n2"]
    assert world.ledgers == {}


@pytest.mark.parametrize(
    ("gpus", "node"), [pytest.param(1, "n2", id="the only card"), pytest.param(3, "n1", id="every card")]
)
def test_where_kubelet_has_no_choice_a_pod_may_ask_it_for_devices(gpus: int, node: str) -> None:
    world, replica = world_of(device_pod(1, gpus))

    assert asyncio.run(replica.bind("uid-s1", node)) == ""

    assert set(card_of(world, "uid-s1").split(",")) == world.devices(node)


@pytest.mark.parametrize("seed", range(4))
def test_a_stranger_that_came_first_keeps_its_card(seed: int) -> None:
    other = stranger(9, "n1")
    world, replica = world_of(other, shared_pod(1, FULL), shared_pod(2, FULL), seed=seed)
    world.kubelets_act()

    async def bind_all() -> list[str]:
        return [await replica.bind(uid, "n1") for uid in ("uid-1", "uid-2")]

    assert asyncio.run(bind_all()) == ["", ""]
    assert world.given["uid-s9"] not in {card_of(world, "uid-1"), card_of(world, "uid-2")}


def test_a_kubelet_without_a_device_is_noticed_at_once_and_not_asked_again() -> None:
    world, replica = world_of(shared_pod(1))

    async def bind_twice() -> list[str]:
        world.create_pod(stranger(9, "n2"))  # the replica has not heard of it yet
        world.kubelets_act()
        task = asyncio.create_task(replica.committer.bind("uid-1", "n2"))
        while not task.done():
            await asyncio.sleep(0)
            world.kubelets_act()
            for pod in world.reservations():
                replica.ears.set_pod(pod)
        return [task.result().refused, (await replica.committer.bind("uid-1", "n2")).refused]

    refusals = asyncio.run(bind_twice())

    assert "UnexpectedAdmissionError" in refusals[0]
    assert "UnexpectedAdmissionError" in refusals[1]
    assert len(world.reservations()) == 1
    assert "n2" not in world.ledgers
    assert (request_of(world, "p1").phase, request_of(world, "p1").attempts) == (BindPhase.FAILED, 2)


async def be_rejected(world: World, replica: Replica, uid: str) -> None:
    """A stranger has the only device of n2, which the replica has not heard of."""
    world.create_pod(stranger(9, "n2"))
    world.kubelets_act()
    task = asyncio.create_task(replica.committer.bind(uid, "n2"))
    while not task.done():
        await asyncio.sleep(0)
        world.kubelets_act()
        for pod in world.reservations():
            replica.ears.set_pod(pod)
    assert "UnexpectedAdmissionError" in task.result().refused


async def filtered(replica: Replica, pod: PodObject) -> ExtenderFilterResult:
    cluster = RealCluster(replica.live, replica.committer)
    args = ExtenderArgs(pod=msgspec.to_builtins(pod), names=tuple(NODES))
    return await filter_nodes(cluster, Journal(History()), args)


def test_filter_refuses_a_node_whose_kubelet_had_no_device_and_the_pod_is_woken_when_that_is_over() -> None:
    world, replica = world_of(shared_pod(1), shared_pod(2))

    async def story() -> None:
        await be_rejected(world, replica, "uid-1")

        answer = await filtered(replica, shared_pod(2))
        assert answer.node_names == ["n1"]
        assert answer.failed_nodes["n2"].startswith("NoDeviceLeft: kubelet has no device")
        assert replica.binder.end_bars() == []

        replica.seconds += 31.0
        assert (await filtered(replica, shared_pod(2))).node_names == ["n1", "n2"]
        assert replica.binder.end_bars() == ["n2"]
        assert replica.binder.end_bars() == []

    asyncio.run(story())


def test_a_node_is_open_again_as_soon_as_a_pod_has_left_it() -> None:
    neighbour = pod_object(meta={"name": "n", "namespace": "ns", "uid": "uid-n"}, nodeName="n2")
    world, replica = world_of(shared_pod(1), shared_pod(2), neighbour)

    async def story() -> None:
        await be_rejected(world, replica, "uid-1")
        assert (await filtered(replica, shared_pod(2))).node_names == ["n1"]

        world.delete_pod("uid-n")
        replica.hear()

        assert replica.binder.end_bars() == ["n2"]

    asyncio.run(story())


def test_filter_lets_a_pod_share_what_is_held_where_kubelet_has_nothing_more() -> None:
    world, replica = world_of(shared_pod(1), shared_pod(2, FULL), shared_pod(3), shared_pod(4, FULL))

    async def story() -> None:
        await replica.bind("uid-1", "n1")
        for number in (10, 11):
            world.create_pod(stranger(number, "n1"))
        world.kubelets_act()
        task = asyncio.create_task(replica.committer.bind("uid-2", "n1"))
        while not task.done():
            await asyncio.sleep(0)
            world.kubelets_act()
            for pod in world.reservations():
                replica.ears.set_pod(pod)
        assert "UnexpectedAdmissionError" in task.result().refused

        assert "n1" in ((await filtered(replica, shared_pod(3))).node_names or [])
        assert "n1" not in ((await filtered(replica, shared_pod(4, FULL))).node_names or [])

    asyncio.run(story())


def test_a_kubelet_that_says_nothing_costs_the_deadline_and_no_more() -> None:
    world = World(Random(1))
    world.create_pod(shared_pod(1))
    replica = Replica(world, within_s=0.05)

    refused = asyncio.run(replica.committer.bind("uid-1", "n1")).refused

    assert "has not told within 0.05 s" in refused
    assert "n1" not in world.ledgers
    assert request_of(world, "p1").reason == refused


def test_a_card_that_filled_up_while_kubelet_was_waited_for_is_not_bound_to() -> None:
    """What fitted at first is judged again, by the last observation, before anything is claimed."""
    world, replica = world_of(shared_pod(1))

    async def bind_and_fill() -> str:
        task = asyncio.create_task(replica.committer.bind("uid-1", "n2"))
        for _ in range(100):
            await asyncio.sleep(0)
        replica.now += 1.0
        nobodys = GpuProcess(pid=7, used=Mib(20_000), pod_uid=None)
        seen = Observation(at=replica.now, used=Mib(20_000), processes=(nobodys,))
        replica.live.fleet.observe("GPU-n2-0", seen)
        while not task.done():
            await asyncio.sleep(0)
            world.kubelets_act()
            replica.hear()
        return task.result().refused

    refused = asyncio.run(bind_and_fill())

    assert refused == "ns/p1 no longer fits on n2: that changed while kubelet was asked for a GPU"
    assert "n2" not in world.ledgers


def test_a_pod_that_is_deleted_while_it_waits_is_not_waited_for() -> None:
    world, replica = world_of(shared_pod(1))

    async def bind_and_delete() -> str:
        task = asyncio.create_task(replica.committer.bind("uid-1", "n1"))
        for _ in range(100):
            await asyncio.sleep(0)
        assert world.reservations()
        world.delete_pod("uid-1")
        replica.hear()
        replica.parts.holds.wake()
        return (await task).refused

    assert asyncio.run(bind_and_delete()) == "ns/p1 is gone"
    asyncio.run(replica.keep())
    assert world.reservations() == []


def test_a_reservation_of_an_earlier_leader_is_used_and_not_made_again() -> None:
    world, replica = world_of(shared_pod(1), shared_pod(2))
    asyncio.run(replica.bind("uid-1", "n1"))

    heir = Replica(world, epoch=2)
    assert asyncio.run(heir.bind("uid-2", "n1")) == ""

    assert len(world.reservations()) == 1


def test_what_a_retry_of_the_same_name_finds_is_not_its_own() -> None:
    world, replica = world_of(shared_pod(1))
    asyncio.run(replica.bind("uid-1", "n1"))
    stale = world.requests["ns", "p1"]
    world.delete_pod("uid-1")
    world.requests["ns", "p1"] = stale  # the garbage collector is late
    replica.hear()
    replica.parts.requests.take(stale)
    again = shared_pod(1)
    renamed = pod_with_uid(again, "uid-new")
    world.create_pod(renamed)
    replica.hear()

    assert asyncio.run(replica.bind("uid-new", "n1")) == ""

    request = request_of(world, "p1")
    assert (request.pod_uid, request.attempts, request.phase) == ("uid-new", 1, BindPhase.SUCCEEDED)


def pod_with_uid(pod: PodObject, uid: str) -> PodObject:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=uid))


def test_reservation_pods_are_in_their_namespace() -> None:
    world, replica = world_of(shared_pod(1))
    asyncio.run(replica.bind("uid-1", "n1"))

    assert {pod.metadata.namespace for pod in world.reservations()} == {OPTIONS.namespace}


@pytest.mark.parametrize(
    ("partitioned", "expected"),
    [
        pytest.param((False, False), True, id="no MIG"),
        pytest.param((True, False), True, id="one card is partitioned, kubelet offers the other"),
        pytest.param((True, True), False, id="kubelet offers instances"),
    ],
)
def test_cards_that_kubelet_offers_whole_are_held(partitioned: tuple[bool, ...], *, expected: bool) -> None:
    cards = tuple(
        PhysicalGpu(uuid=f"GPU-{index}", node="n", index=index, total=Mib(CARD_MIB), mig=mig)
        for index, mig in enumerate(partitioned)
    )

    assert is_held_by_reservations(Node(name="n", gpus=cards, advertised=2)) is expected
