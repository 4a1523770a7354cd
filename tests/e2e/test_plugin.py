"""The device plugin on a real kubelet: offered, lost and found, sick, asked before a start, and counted."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.kubernetes import wait_for_pod
from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import apply_crds
from e2e.plugin_world import (
    PODS,
    SLOT,
    PluginWorld,
    admitted,
    container_of,
    plugin_world,
    waiting_for,
)
from realnode.machine import Programs
from realnode.pods import busybox_pod, is_running
from vramline.model.gpu import Health

SLOTS = 512


@pytest.fixture(scope="module")
def world(plane: ControlPlane, programs: Programs) -> Iterator[PluginWorld]:
    with plane.client() as admin:
        apply_crds(admin)
    with plugin_world(plane, programs) as running:
        running.wait_for_resources(SLOTS, SLOTS)
        yield running


def run_pod(world: PluginWorld, name: str, mib: int, script: str = "") -> dict[str, Any]:
    world.create(admitted(name, mib, script))
    return wait_for_pod(world.admin, "default", name, is_running)


def test_a_pod_gets_a_slot_from_kubelet_and_its_card_from_vramline(world: PluginWorld) -> None:
    pod = run_pod(world, "first", 8_000, "echo $NVIDIA_VISIBLE_DEVICES")

    allocation = json.loads(pod["metadata"]["annotations"]["vramline.io/allocation"])
    [card] = allocation["gpus"]
    assert world.node.words("default", "first") == f"{card['uuid']}\n"
    assert [each.device for each in world.held() if each.pod == "first"] == ["slot-00000"]
    assert world.promised()["default/first"] == card["uuid"]


def test_kubelet_and_the_ledger_name_the_same_pods(world: PluginWorld) -> None:
    for number in range(3):
        run_pod(world, f"counted-{number}", 2_000)

    holders = [each.pod_key for each in world.held()]
    assert len(holders) == len(set(holders))
    assert set(holders) == set(world.promised())

    world.admin.delete(f"{PODS}/counted-0").raise_for_status()
    wait_until(
        lambda: "default/counted-0" not in {each.pod_key for each in world.held()}, "kubelet's release"
    )
    # The ledger lets go once a look that is newer than the pod's end shows the memory free.
    wait_until(lambda: "default/counted-0" not in world.promised_after_a_look(), "the ledger's release")
    assert {each.pod_key for each in world.held()} == set(world.promised())


def test_a_killed_kubelet_finds_the_plugin_and_its_pods_again(world: PluginWorld) -> None:
    before = run_pod(world, "survivor", 2_000)
    held = set(world.held())

    world.node.kill_kubelet()
    world.node.start_kubelet()
    world.node.wait_until_ready()

    world.wait_for_registration()
    wait_until(lambda: set(world.held()) == held, "kubelet's memory of slots")
    after = run_pod(world, "after-the-kill", 2_000)
    assert is_running(after)
    world.wait_for_resources(SLOTS, SLOTS)
    assert container_of(world.admin.get(f"{PODS}/survivor").json()) == container_of(before)


def test_a_sick_card_lowers_what_the_node_offers_until_it_is_well(world: PluginWorld) -> None:
    pod = run_pod(world, "stays", 2_000)

    world.cards.set_health(Health.UNHEALTHY)
    world.wait_for_resources(SLOTS, SLOTS // 2)
    world.cards.set_health(Health.PROBATION)
    assert container_of(world.admin.get(f"{PODS}/stays").json()) == container_of(pod)
    world.cards.set_health(Health.HEALTHY)
    world.wait_for_resources(SLOTS, SLOTS)


def test_a_container_waits_while_its_card_is_short_and_starts_when_it_is_not(world: PluginWorld) -> None:
    world.cards.occupy(22_000)  # the scheduler has not heard of it: the memory went after the binding
    world.create(admitted("waits", 6_000))
    pod = wait_for_pod(world.admin, "default", "waits", lambda pod: waiting_for(pod)[1] != "")

    reason, message = waiting_for(pod)
    card = world.promised()["default/waits"]
    assert reason == "CreateContainerConfigError"
    assert f"{card} lacks " in message
    assert "of the 6,000 promised to default/waits: usable 24,000 − held " in message
    assert pod["status"]["phase"] == "Pending"

    world.cards.occupy(0)
    started = wait_for_pod(world.admin, "default", "waits", is_running)
    assert container_of(started)[1] == 0
    assert started["metadata"]["uid"] == pod["metadata"]["uid"]


def test_a_pod_that_went_past_the_scheduler_does_not_start(world: PluginWorld) -> None:
    pod = busybox_pod("past-the-scheduler")
    pod["spec"]["nodeName"] = world.node.name
    pod["spec"]["containers"][0]["resources"] = {"limits": {SLOT: "1"}}
    world.create(pod)

    stored = wait_for_pod(world.admin, "default", "past-the-scheduler", lambda pod: waiting_for(pod)[1] != "")

    assert "promises no memory to default/past-the-scheduler" in waiting_for(stored)[1]
    world.admin.delete(f"{PODS}/past-the-scheduler").raise_for_status()


def test_a_container_that_ended_is_looked_at_again_before_its_restart(world: PluginWorld) -> None:
    run_pod(world, "restarts", 2_000)

    world.end_container("restarts")

    wait_for_pod(
        world.admin, "default", "restarts", lambda pod: is_running(pod) and container_of(pod)[1] == 1
    )
