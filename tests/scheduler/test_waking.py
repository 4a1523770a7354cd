"""Waking: only when memory became free that a waiting pod can use, and only once for all of them."""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any, cast

import pytest

from kubernetes_builders import node_object, pod_object, report
from scheduler.memory_store import MemoryStore
from vramline.model.rules import Rules
from vramline.scheduler.agent_streams import AgentStreams
from vramline.scheduler.live import LiveState
from vramline.scheduler.waiting import WaitingPods
from vramline.scheduler.waking import Waker
from vramline.telemetry.tallies import Happening, Tallies
from vramline.wire import keys

TOTAL = 8_192


class Wakes:
    """The part of the streams that matters here: who was told."""

    def __init__(self, *up: str) -> None:
        self.up = up
        self.told: list[str] = []

    def __len__(self) -> int:
        return len(self.up)

    def speaking(self) -> Iterator[str]:
        return iter(self.up)

    async def wake(self, node: str) -> bool:
        if node in self.up:
            self.told.append(node)
        return node in self.up


class World:
    """Two nodes, and a pod of 4 GiB that was refused while both were full."""

    def __init__(self, *up: str) -> None:
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
        self.wakes = Wakes(*(up or ("n1", "n2")))
        self.waker = Waker(self.live, cast("AgentStreams", self.wakes), self.waiting, self.tallies)
        ask = self.live.pods["uid-1"].ask
        assert ask is not None
        self.waiting.add(ask)
        self.turn()
        self.wakes.told.clear()

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


def test_memory_that_became_free_wakes_the_node_it_is_on() -> None:
    world = World()
    world.see("n2", 0)
    world.turn()

    assert world.wakes.told == ["n2"]
    assert world.tallies.of(Happening.WAKES, "sent") == 1


def test_nobody_is_woken_twice_for_the_same_memory() -> None:
    world = World()
    world.see("n2", 0)
    world.turn()
    world.turn()

    assert world.wakes.told == ["n2"]


def test_one_stamp_is_enough_for_all() -> None:
    world = World()
    world.see("n1", 0)
    world.see("n2", 0)
    world.turn()

    assert len(world.wakes.told) == 1


@pytest.mark.parametrize("used", [8_000, 4_200], ids=["nothing became free", "not enough became free"])
def test_memory_that_nobody_can_use_wakes_nobody(used: int) -> None:
    world = World()
    world.see("n1", used + 96)
    world.see("n1", used)
    world.turn()

    assert world.wakes.told == []


def test_a_pod_that_no_longer_waits_is_not_woken() -> None:
    world = World()
    world.live.drop_pod("uid-1")
    world.see("n1", 0)
    world.turn()

    assert world.wakes.told == []


def test_a_card_that_is_healthy_again_is_news() -> None:
    world = World()
    world.see("n1", 0, health="Unhealthy")
    world.turn()
    assert world.wakes.told == []

    world.see("n1", 0, health="Healthy")
    world.turn()
    assert world.wakes.told == ["n1"]


def test_where_the_nodes_own_agent_has_no_stream_another_stamps_its_node() -> None:
    world = World("n2")
    world.see("n1", 0)
    world.turn()

    assert world.wakes.told == ["n2"]


def test_only_the_pods_refused_last_are_remembered() -> None:
    world, few = World(), WaitingPods(most=2)
    ask = world.live.pods["uid-1"].ask
    assert ask is not None
    for _ in range(3):
        few.add(ask)
    few.add(type(ask)(pod="ns/a", pod_uid="a", gpus=1, size=ask.size))
    few.add(type(ask)(pod="ns/b", pod_uid="b", gpus=1, size=ask.size))

    assert few.still_waiting(world.live.pods) == []
