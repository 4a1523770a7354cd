"""Hints to kube-scheduler: for whom, when, and never in the way of anything."""

import asyncio
from typing import Any

import pytest

from kubernetes_builders import node_object, pod_object, report
from scheduler.hints import CARD_MIB, World
from vramline.scheduler.nominator import HintRules
from vramline.telemetry.tallies import Happening
from vramline.wire import keys
from vramline.wire.kubernetes import PodCondition


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


def test_a_nomination_that_comes_while_a_hint_waits_for_its_turn_is_not_overwritten() -> None:
    world = World(nodes=8)
    for number in range(24):
        world.add(number)
    late = "uid-23"  # sixteen others are written first

    def preempt(uid: str) -> None:
        if uid == "uid-2":
            world.live.set_pod(world.store.touch(late, nominated_node_name="n7"))

    world.store.before = preempt

    assert late not in dict(world.step())
    assert world.live.pods[late].nominated == "n7"


def test_a_preemptor_that_is_marked_while_its_hint_waits_for_its_turn_is_not_touched() -> None:
    world = World(nodes=8)
    for number in range(24):
        world.add(number)
    condition = PodCondition(type=keys.CONDITION_PREEMPTOR, status="True", reason="n7")

    def preempt(uid: str) -> None:
        if uid == "uid-2":
            world.live.set_pod(world.store.touch("uid-23", conditions=[condition]))

    world.store.before = preempt

    assert "uid-23" not in dict(world.step())


def test_a_hint_that_was_tried_in_vain_is_neither_renewed_nor_given_again() -> None:
    """kube-scheduler may preempt on the very node that it was told, and then the field is its own."""
    world = World()
    for number in range(12):
        world.add(number)
    node = dict(world.step())["uid-4"]
    world.nominator.tried("uid-4")
    world.live.set_pod(
        pod_object(
            {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}},
            meta={"name": "other", "uid": "other", "resourceVersion": "99"},
            nodeName=node,
        )
    )
    world.now = 60.0
    assert "uid-4" not in dict(world.step())

    world.live.set_pod(world.store.touch("uid-4", nominated_node_name=None))  # or it finds nobody to evict
    world.live.drop_pod("other")
    for number in range(12, 24):
        world.add(number, mib=100)
    world.now = 120.0
    assert "uid-4" not in dict(world.step())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"unschedulable": True}, id="cordoned"),
        pytest.param({"taints": [{"key": "mine", "effect": "NoSchedule"}]}, id="tainted"),
        pytest.param({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, id="not ready"),
    ],
)
def test_hints_to_a_node_that_no_longer_takes_pods_are_renewed(change: dict[str, Any]) -> None:
    world = World(nodes=8)
    for number in range(8):
        world.add(number)
    told = dict(world.step())
    node = told["uid-2"]
    world.live.set_node(node_object(node, **change))
    world.add(8)

    renewed = dict(world.step())

    assert {uid for uid, where in told.items() if where == node} <= set(renewed)
    assert node not in renewed.values()


def test_what_an_earlier_leader_told_counts_for_those_that_come_after() -> None:
    world = World()
    for number in range(8):
        world.add(number)
        world.live.set_pod(world.store.touch(f"uid-{number}", nominated_node_name=f"n{number // 4}"))
    for number in range(8, 14):
        world.add(number)

    hints = world.step()

    assert {node for _, node in hints} == {"n2"}
    assert len(hints) == 4


def test_a_replica_that_does_not_lead_forgets_whom_kube_scheduler_tried() -> None:
    world = World()
    world.leads = False
    for number in range(50):
        world.nominator.tried(f"uid-{number}")
    world.now = 11.0

    world.step()

    assert not world.nominator._tried


def test_hints_rest_for_a_while_where_the_api_server_does_not_take_them() -> None:
    world = World(nodes=30)
    for number in range(100):
        world.add(number)
    world.store.takes = 0

    world.step()
    tried = world.store.asked
    assert 1 <= tried <= 16  # those that were under way
    world.now = 4.9
    world.step()
    assert world.store.asked == tried

    world.store.takes = 10_000
    world.now = 5.0
    assert len(world.step()) == 99  # one is left alone


def test_nobody_waits_at_a_filter_for_hints_that_rest() -> None:
    world = World(nodes=30)
    for number in range(100):
        world.add(number)
    world.store.takes = 20
    world.step()

    asyncio.run(asyncio.wait_for(world.nominator.get_ahead("uid-99"), 10.0))

    assert not any(world.tallies.of(Happening.HELD, how) for how in ("ahead", "nobody left", "in vain"))
