"""Waking: only when memory became free that a waiting pod can use, and only once for all of them."""

import asyncio
from random import Random
from typing import Any

import pytest

from builders import claim
from kubernetes_builders import hami_card, hami_register, node_object, pod_object, report
from scheduler.memory_store import MemoryStore
from scheduler.replicas import Replica, gpu_pod
from scheduler.reserving import OTHER, TOKEN, desk_of, reserve
from vramline.model.rules import Rules
from vramline.scheduler.live import LiveState
from vramline.scheduler.reservations import Reserved
from vramline.scheduler.waiting import WaitingPods
from vramline.scheduler.waking import Waker
from vramline.telemetry.tallies import Happening, Tallies
from vramline.wire import keys
from vramline.wire.ledger_v1alpha1 import GpuLedger

TOTAL = 8_192


class CountingBell:
    """A bell that can be out of order."""

    def __init__(self) -> None:
        self.rings = 0
        self.works = True

    async def ring(self, at: float) -> bool:
        self.rings += self.works and at > 0
        return self.works


class World:
    """Two nodes, and a pod of 4 GiB that was refused while both were full."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.live = LiveState(Rules(), clock=lambda: self.now)
        for name in ("n1", "n2"):
            self.live.set_node(node_object(name))
            self.see(name, 8_000)
        store = MemoryStore(Random(1))
        store.create_pod(
            pod_object(annotations={keys.VRAM: "4096"}, meta={"name": "p", "namespace": "ns", "uid": "uid-1"})
        )
        store.watch(self.live)
        self.waiting, self.tallies = WaitingPods(), Tallies()
        self.bell = CountingBell()
        self.waker = Waker(self.live, self.bell, self.waiting, self.tallies)
        ask = self.live.pods["uid-1"].ask
        assert ask is not None
        self.waiting.add(ask)
        self.turn()
        self.bell.rings = 0

    def see(self, node: str, used: int, **status: Any) -> None:
        self.now += 1.0
        seen: dict[str, Any] = {"uuid": f"GPU-{node}", "totalMiB": TOTAL, "usedMiB": used, "processes": []}
        self.live.set_report(
            report({**seen, **status}, node=node, observedAt=f"1970-01-01T00:{self.clock()}Z")
        )

    def clock(self) -> str:
        return f"{int(self.now) // 60:02}:{int(self.now) % 60:02}"

    def turn(self) -> None:
        asyncio.run(self.waker.wake())


def test_memory_that_became_free_is_told() -> None:
    world = World()
    world.see("n2", 0)
    world.turn()

    assert world.bell.rings == 1
    assert world.tallies.of(Happening.WAKES, "sent") == 1


def test_nobody_is_woken_twice_for_the_same_memory() -> None:
    world = World()
    world.see("n2", 0)
    world.turn()
    world.turn()

    assert world.bell.rings == 1


def test_one_ring_is_enough_for_all() -> None:
    world = World()
    world.see("n1", 0)
    world.see("n2", 0)
    world.turn()

    assert world.bell.rings == 1


@pytest.mark.parametrize("used", [8_000, 4_200], ids=["nothing became free", "not enough became free"])
def test_memory_that_nobody_can_use_wakes_nobody(used: int) -> None:
    world = World()
    world.see("n1", used + 96)
    world.see("n1", used)
    world.turn()

    assert world.bell.rings == 0


def test_a_pod_that_no_longer_waits_is_not_woken() -> None:
    world = World()
    world.live.drop_pod("uid-1")
    world.see("n1", 0)
    world.turn()

    assert world.bell.rings == 0


def test_a_card_that_is_healthy_again_is_news() -> None:
    world = World()
    world.see("n1", 0, health="Unhealthy")
    world.turn()
    assert world.bell.rings == 0

    world.see("n1", 0, health="Healthy")
    world.turn()
    assert world.bell.rings == 1


def test_a_node_that_joins_is_news() -> None:
    world = World()
    world.live.set_node(node_object("n3"))
    world.see("n3", 0)
    world.turn()

    assert world.bell.rings == 1


def test_a_ring_that_failed_is_made_up_for() -> None:
    world = World()
    world.bell.works = False
    world.see("n2", 0)
    world.turn()
    assert world.tallies.of(Happening.WAKES, "failed") == 1

    world.bell.works = True
    world.turn()
    world.turn()
    assert world.bell.rings == 1


def test_what_is_held_for_a_pod_that_is_gone_is_told_once_its_grace_is_over() -> None:
    """No agent looks at the node: time alone frees the memory, and no object changes."""
    world = World()
    held = claim(30_000, "ns/gone")
    world.live.set_ledger(GpuLedger(node="n3", resource_version="1", claims=(held,)))
    world.live.set_node(node_object("n3", annotations=hami_register(hami_card())))
    world.live.finish_listing_pods()
    for now, rings in ((world.now + 59, 0), (world.now + 61, 1)):
        world.now = now
        world.live.settle()
        world.turn()
        assert world.bell.rings == rings


def test_only_the_pods_refused_last_are_remembered() -> None:
    world, few = World(), WaitingPods(most=2)
    ask = world.live.pods["uid-1"].ask
    assert ask is not None
    for _ in range(3):
        few.add(ask)
    few.add(type(ask)(pod="ns/a", pod_uid="a", gpus=1, size=ask.size))
    few.add(type(ask)(pod="ns/b", pod_uid="b", gpus=1, size=ask.size))

    assert few.still_waiting(world.live.pods) == []


@pytest.mark.parametrize("how", ["its time", "its holder"])
def test_a_reservation_that_ends_is_told(how: str) -> None:
    """No pod and no card changes: the memory is free by the ledger alone."""
    store = MemoryStore(Random(1))
    store.create_pod(gpu_pod(1, 30_000))
    replica = Replica(store)
    for token in (TOKEN, OTHER):
        assert isinstance(reserve(replica, 32_000, token=token, ttl=60), Reserved)
    bell, waiting = CountingBell(), WaitingPods()
    waker = Waker(replica.live, bell, waiting, Tallies())
    ask = replica.live.pods["uid-1"].ask
    assert ask is not None
    waiting.add(ask)
    asyncio.run(waker.wake())
    assert bell.rings == 0

    if how == "its time":
        replica.now += 61
        asyncio.run(replica.committer.reap())
    else:
        asyncio.run(desk_of(replica).end(TOKEN))
    asyncio.run(waker.wake())
    assert bell.rings == 1
