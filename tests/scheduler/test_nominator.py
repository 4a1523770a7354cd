"""Hints to kube-scheduler: for whom, when, and never in the way of anything."""

import asyncio
from typing import Any

import msgspec
import pytest

from kubernetes_builders import node_object, pod_object, report
from vramline.model.ledger import Reservation
from vramline.model.pod import Pod
from vramline.model.rules import Rules
from vramline.scheduler.foresight import Foresight
from vramline.scheduler.live import LiveState
from vramline.scheduler.nominator import HintRules, Nominator
from vramline.scheduler.store import Conflict, Unclear
from vramline.telemetry.tallies import Happening, Tallies
from vramline.wire import keys
from vramline.wire.kubernetes import PodObject, PodStatus

CARD_MIB = 32_600
RULES = HintRules(nodes=3, waiting=4, head=2)


class HintingStore:
    """Takes hints as the API server does, under the condition of the pod's version."""

    def __init__(self) -> None:
        self.pods: dict[str, PodObject] = {}
        self.hints: list[tuple[str, str]] = []
        self.version = 100
        self.before: Any = lambda _uid: None
        """Called when a hint is on its way."""
        self.gate: asyncio.Event | None = None
        """Where set, answers wait for it."""

    async def hint_node(self, pod: Pod, version: str, node: str) -> PodObject | Conflict | Unclear:
        self.before(pod.uid)
        if self.gate is not None:
            await self.gate.wait()
        stored = self.pods[pod.uid]
        if stored.metadata.resource_version != version:
            return Conflict("the pod has changed")
        self.hints.append((pod.uid, node))
        return self.touch(pod.uid, nominated_node_name=node)

    def touch(self, uid: str, **status: Any) -> PodObject:
        self.version += 1
        old = self.pods[uid]
        meta = msgspec.structs.replace(old.metadata, resource_version=str(self.version))
        new = msgspec.structs.replace(old.status or PodStatus(), **status)
        self.pods[uid] = msgspec.structs.replace(old, metadata=meta, status=new)
        return self.pods[uid]


class World:
    """Three nodes of one card each, and pods of 8,000 MiB, four of which fill a card."""

    def __init__(self, *, nodes: int = 3, rules: HintRules = RULES, **node: Any) -> None:
        self.now = 0.0
        self.leads = True
        self.live = LiveState(Rules(), clock=lambda: 1_000.0)
        for number in range(nodes):
            name = f"n{number}"
            self.live.set_report(report({"uuid": f"GPU-{name}", "index": 0, "totalMiB": CARD_MIB}, node=name))
            self.live.set_node(node_object(name, **node))
        self.live.finish_listing_pods()
        self.store = HintingStore()
        self.tallies = Tallies()
        self.nominator = Nominator(
            self.live, self.store, lambda: self.leads, rules, clock=lambda: self.now, tallies=self.tallies
        )

    def add(self, number: int, *, mib: int | None = 8_000, **fields: Any) -> str:
        uid = f"uid-{number}"
        told = {} if mib is None else {keys.VRAM: str(mib)}
        spec = {"schedulerName": "vramline", **fields}
        pod = pod_object(
            annotations=told,
            meta={"name": f"p{number}", "uid": uid, "resourceVersion": str(number + 1)},
            **spec,
        )
        self.store.pods[uid] = pod
        self.live.set_pod(pod)
        return uid

    def step(self) -> list[tuple[str, str]]:
        """Look once and return the hints that were given."""
        before = len(self.store.hints)
        given = asyncio.run(self.nominator.step())
        assert given == len(self.store.hints) - before
        return self.store.hints[before:]

    def planned(self) -> list[str]:
        return [node for _, node in self.store.hints]


def test_pods_behind_the_head_are_told_a_node_beside_the_place_that_the_head_will_take() -> None:
    world = World()
    for number in range(14):
        world.add(number)

    hints = world.step()

    assert [uid for uid, _ in hints] == [f"uid-{number}" for number in range(2, 12)]
    assert {node: world.planned().count(node) for node in world.planned()} == {"n0": 2, "n1": 4, "n2": 4}


def test_what_was_told_counts_the_next_time() -> None:
    world = World()
    for number in range(10):
        world.add(number)
    world.step()
    for number in range(10, 24):
        world.add(number)

    world.step()

    assert {node: world.planned().count(node) for node in world.planned()} == {"n0": 2, "n1": 4, "n2": 4}


def test_the_next_in_line_are_left_alone_once_not_again_and_again() -> None:
    world = World(nodes=8)
    for number in range(8):
        world.add(number)
    world.step()
    for number in range(8, 14):
        world.add(number)

    assert [uid for uid, _ in world.step()] == [f"uid-{number}" for number in range(8, 14)]


def test_more_important_pods_are_planned_first() -> None:
    world = World()
    for number in range(6):
        world.add(number, priority=number)

    assert [uid for uid, _ in world.step()] == ["uid-3", "uid-2", "uid-1", "uid-0"]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"mib": None}, id="asks for no GPU"),
        pytest.param({"schedulerName": "another"}, id="another scheduler's"),
        pytest.param({"schedulerName": None}, id="the default scheduler's"),
        pytest.param({"schedulingGates": [{"name": "wait"}]}, id="gated"),
        pytest.param({"affinity": {"podAntiAffinity": {"x": []}}}, id="keeps away from other pods"),
        pytest.param({"topologySpreadConstraints": [{"maxSkew": 1}]}, id="spreads"),
        pytest.param({"nodeSelector": {"no": "node"}}, id="no node is selected"),
        pytest.param({"mib": 90_000}, id="fits nowhere"),
        pytest.param({"nodeName": "n0"}, id="bound"),
    ],
)
def test_pods_that_get_no_hint(fields: dict[str, Any]) -> None:
    world = World()
    for number in range(10):
        world.add(number, **fields)

    assert world.step() == []


def test_nodes_with_a_taint_are_for_pods_that_tolerate_it() -> None:
    world = World(taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}])
    for number in range(6):
        world.add(number)
    assert world.step() == []

    for number in range(6, 12):
        world.add(number, tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}])
    assert [uid for uid, _ in world.step()] == [f"uid-{number}" for number in range(6, 12)]


@pytest.mark.parametrize(
    ("nodes", "pods", "leads"),
    [
        pytest.param(2, 10, True, id="few nodes"),
        pytest.param(3, 3, True, id="few pods"),
        pytest.param(3, 10, False, id="not leading"),
    ],
)
def test_a_hint_must_be_worth_its_write(nodes: int, pods: int, *, leads: bool) -> None:
    world = World(nodes=nodes)
    world.leads = leads
    for number in range(pods):
        world.add(number)

    assert world.step() == []


def test_the_last_of_a_burst_get_hints_too() -> None:
    world = World(nodes=8)
    for number in range(8):
        world.add(number)
    world.step()
    world.add(8)

    assert [uid for uid, _ in world.step()] == ["uid-8"]


@pytest.mark.parametrize(("nodes", "alone"), [(1_000, 8), (1_001, 8), (2_000, 4), (5_000, 2), (50_000, 1)])
def test_the_slower_kube_scheduler_is_the_fewer_pods_are_left_alone(nodes: int, alone: int) -> None:
    assert HintRules().left_alone(nodes) == alone


def test_pods_that_fit_nowhere_are_not_planned_over_and_over_unless_another_pod_comes() -> None:
    world = World()
    for number in range(8):
        world.add(number, mib=CARD_MIB + 1)
    assert world.step() == []
    world.live.set_report(report({"uuid": "GPU-large", "index": 0, "totalMiB": 4 * CARD_MIB}, node="large"))
    world.live.set_node(node_object("large"))

    world.now = 4.0
    assert world.step() == []
    world.now = 5.0
    assert [uid for uid, _ in world.step()] == ["uid-2"]
    world.add(8)
    assert [uid for uid, _ in world.step()] == ["uid-8"]


def test_a_nomination_of_somebody_else_is_never_overwritten() -> None:
    world = World()
    for number in range(8):
        world.add(number)
    world.live.set_pod(world.store.touch("uid-5", nominated_node_name="n2"))  # kube-scheduler preempts
    world.store.before = lambda uid: world.store.touch("uid-6") if uid == "uid-6" else None  # just now

    hints = dict(world.step())

    assert set(hints) == {"uid-2", "uid-3", "uid-4", "uid-7"}
    assert world.tallies.of(Happening.NOMINATIONS, "not written") == 1


def test_a_pod_that_is_being_tried_is_left_alone_for_a_while() -> None:
    world = World()
    for number in range(8):
        world.add(number)
    for number in range(4):
        world.nominator.tried(f"uid-{number}")

    assert [uid for uid, _ in world.step()] == ["uid-6", "uid-7"]
    world.now = 11.0
    assert [uid for uid, _ in world.step()] == ["uid-2", "uid-3", "uid-4", "uid-5"]


def test_a_bind_waits_for_the_hint_on_its_way_and_knows_the_version_then() -> None:
    world = World()
    for number in range(6):
        world.add(number)

    async def story() -> None:
        world.store.gate = asyncio.Event()
        looking = asyncio.create_task(world.nominator.step())
        for _ in range(5):
            await asyncio.sleep(0)
        settling = asyncio.create_task(world.nominator.settle("uid-3"))
        await asyncio.sleep(0)
        assert not settling.done()
        world.store.gate.set()
        await settling
        assert world.live.version_of("uid-3") == world.store.pods["uid-3"].metadata.resource_version
        await world.nominator.settle("uid-0")  # nothing is on its way
        await looking

    asyncio.run(story())


def test_a_hint_that_went_wrong_is_renewed() -> None:
    world = World()
    for number in range(8):
        world.add(number)
    world.step()
    taken = dict(world.store.hints)["uid-2"]
    world.live.set_pod(  # somebody else takes the card
        pod_object(
            {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}},
            meta={"name": "other", "uid": "other", "resourceVersion": "99"},
            nodeName=taken,
        )
    )
    for number in range(8, 12):
        world.add(number)

    wrong = {uid for uid, node in world.store.hints if node == taken}

    renewed = {uid: node for uid, node in world.step() if uid in wrong}

    assert set(renewed) == wrong == {"uid-2", "uid-3"}
    assert taken not in renewed.values()


def test_what_kube_scheduler_cleared_is_no_longer_ours() -> None:
    world = World()
    for number in range(8):
        world.add(number)
    world.step()
    world.live.set_pod(world.store.touch("uid-3", nominated_node_name="n2"))
    for number in range(8, 12):
        world.add(number)

    assert "uid-3" not in dict(world.step())


def test_foresight_says_when_a_plan_no_longer_fits() -> None:
    world = World(nodes=1)
    pods = [world.live.pods[world.add(number)] for number in range(5)]
    first = Foresight(world.live)
    plans = [first.place(pod) for pod in pods]

    assert [plan is not None for plan in plans] == [True, True, True, True, False]
    again = Foresight(world.live)
    kept = [again.keep(pod, plan) for pod, plan in zip(pods, plans, strict=True) if plan is not None]
    assert kept == [True] * 4
    assert plans[0] is not None
    extra = msgspec.structs.replace(plans[0].claims[0], pod_uid="x")
    assert not again.keep(pods[0], Reservation(node="n0", claims=(extra,)))
    assert not again.keep(pods[0], Reservation(node="gone", claims=(extra,)))


def test_foresight_counts_cpu_and_places_of_the_host() -> None:
    world = World(nodes=2, allocatable={"cpu": "4", "pods": "10"})
    needs = {"name": "main", "resources": {"requests": {"cpu": "3"}}}
    pods = []
    for number in range(3):
        pod = pod_object(
            needs, annotations={keys.VRAM: "100"}, meta={"uid": f"u{number}", "resourceVersion": "1"}
        )
        world.live.set_pod(pod)
        pods.append(world.live.pods[f"u{number}"])
    ahead = Foresight(world.live)

    nodes = [plan.node if plan is not None else None for plan in map(ahead.place, pods)]

    assert nodes == ["n0", "n1", None]


def test_kube_scheduler_waits_at_a_filter_until_the_pods_behind_are_told() -> None:
    world = World(nodes=8)
    for number in range(8):
        world.add(number)
    world.step()  # hints are being written from here on

    async def story() -> None:
        for number in range(8, 12):
            world.add(number)
        world.nominator.tried("uid-8")
        waiting = asyncio.create_task(world.nominator.get_ahead("uid-8"))
        await asyncio.sleep(0)
        await world.nominator.step()
        world.now += 0.06  # nobody comes any more
        await asyncio.wait_for(waiting, 60.0)

    asyncio.run(story())

    # Nobody is left alone: kube-scheduler waited. Who waited got none, it would have been in the way.
    assert [uid for uid, _ in world.store.hints][7:] == ["uid-0", "uid-9", "uid-10", "uid-11"]
    assert world.tallies.of(Happening.HELD, "nobody left") == 1


@pytest.mark.parametrize("why", ["not leading", "nothing is being written", "gone"])
def test_a_filter_is_answered_at_once_where_no_hints_are_on_their_way(why: str) -> None:
    world = World(nodes=8)
    for number in range(8):
        world.add(number)
    if why != "nothing is being written":
        world.step()
    world.leads = why != "not leading"

    asyncio.run(world.nominator.get_ahead("uid-none" if why == "gone" else "uid-7"))

    assert not any(world.tallies.of(Happening.HELD, how) for how in ("ahead", "nobody left", "in vain"))


def test_pods_that_fit_nowhere_do_not_keep_hints_from_those_behind_them() -> None:
    world = World(nodes=8)
    for number in range(450):
        world.add(number, mib=CARD_MIB + 1)
    assert world.step() == []
    for number in range(450, 460):
        world.add(number)

    world.step()  # of those that fit nowhere the rest
    hints = [*world.store.hints, *world.step()]

    assert {uid for uid, _ in hints} == {f"uid-{number}" for number in range(450, 460)}
