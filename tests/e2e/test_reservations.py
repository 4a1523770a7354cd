"""Sharing beside NVIDIA's device plugin: real API server and kube-scheduler, stand-in kubelets.

kubelet gives whichever device it likes; shared pods land on cards that kubelet has given away for them, and
whole-GPU pods, whoever places them, never on those.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controlplane.kubelets import run_kubelets
from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import VramlineProcess, extender_configuration, gpu_pod, run_scheduler
from e2e.reservation_world import RESERVES, Document, World, open_world
from json_patch import apply_patch
from vramline.wire.admission import AdmissionOptions, Admitted, plan_admission

SIZE = 24_000


@pytest.fixture(scope="module")
def world(plane: ControlPlane) -> Iterator[World]:
    with plane.client() as admin, run_kubelets(plane) as kubelets, open_world(admin, kubelets) as opened:
        yield opened


@pytest.fixture(scope="module")
def vramline(plane: ControlPlane, world: World) -> Iterator[VramlineProcess]:
    world.add_node("warm", SIZE)
    with run_scheduler(plane, env=RESERVES) as process:
        configuration = extender_configuration(process.port)
        configuration |= {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
        resources = [{"name": "nvidia.com/gpu", "ignoredByScheduler": False}]
        configuration["extenders"][0]["managedResources"] += resources
        plane.start_scheduler(configuration)
        plane.start_scheduler({"profiles": [{"schedulerName": "other"}]})
        yield process


@pytest.fixture
def node(world: World, request: pytest.FixtureRequest) -> Iterator[str]:
    """A name for a node of this test's own; its pods are cleared away."""
    name = f"n{[item.nodeid for item in request.session.items].index(request.node.nodeid)}"
    yield name
    for pod in pods_of(world, name):
        world.admin.delete(f"/api/v1/namespaces/default/pods/{pod}")
    wait_until(lambda: pods_of(world, name) == [], "the end of all pods", seconds=60.0)
    wait_until(lambda: not has_left_overs(world, name), "the end of all reservations", seconds=60.0)
    world.admin.delete(f"/api/v1/nodes/{name}")


def pods_of(world: World, node: str) -> list[str]:
    """The pods on a node, and those on none."""
    pods = world.admin.get("/api/v1/namespaces/default/pods").json()["items"]
    return [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName", node) == node]


def has_left_overs(world: World, node: str) -> bool:
    world.report()
    return any(pod["spec"]["nodeName"] == node for pod in world.reservations())


def shared(name: str, mib: int, node: str) -> Document:
    pod = gpu_pod(name, mib)
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return pod


def whole(name: str, node: str, scheduler: str = "vramline") -> Document:
    """A pod that wants a whole card: as the webhook leaves it, or of a scheduler that does not know us."""
    limits: dict[str, Any] = {"nvidia.com/gpu": "1"}
    pod = {
        "metadata": {"name": name},
        "spec": {
            "schedulerName": scheduler,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{"name": "main", "image": "example", "resources": {"limits": limits}}],
        },
    }
    plan = plan_admission(pod, operation="CREATE", options=AdmissionOptions(makes_reservations=True))
    assert isinstance(plan, Admitted)
    return apply_patch(pod, plan.patch)


def card_in_use(world: World, name: str) -> str:
    """The card that a pod's containers see: the one it was told, or else the one that kubelet gave."""
    given = world.kubelets.cards_of
    wait_until(lambda: bool(world.card_of(name) or given(name=name)), f"a card for {name}", seconds=60.0)
    return world.card_of(name) or given(name=name)[0]


def label(world: World, node: str) -> None:
    headers = {"Content-Type": "application/merge-patch+json"}
    patch = {"metadata": {"labels": {"kubernetes.io/hostname": node}}}
    world.admin.patch(f"/api/v1/nodes/{node}", json=patch, headers=headers).raise_for_status()


def add(world: World, node: str, *totals: int, replicas: int = 1) -> list[str]:
    cards = world.add_node(node, *totals, replicas=replicas)
    label(world, node)
    return cards


def wait_bound(world: World, *names: str) -> None:
    for name in names:
        wait_until(lambda name=name: world.is_bound(name), f"{name} to be bound", seconds=60.0)  # type: ignore[misc]


@pytest.mark.usefixtures("vramline")
def test_the_first_pod_on_a_card_gets_a_reservation_and_the_second_one_shares_it(
    world: World, node: str
) -> None:
    cards = add(world, node, SIZE, SIZE, SIZE)

    world.create(shared("first", 8_000, node))
    wait_bound(world, "first")

    (reservation,) = [pod for pod in world.reservations() if pod["spec"]["nodeName"] == node]
    card = reservation["metadata"]["annotations"]["vramline.io/reserved-gpu"]
    assert card in cards
    assert world.card_of("first") == card
    assert reservation["metadata"]["labels"]["app"] == "resource-reservation"
    wait_until(lambda: world.request("first").get("phase") == "Succeeded", "the record")
    assert world.request("first")["attempts"] == 1
    assert [each["uuid"] for each in world.request("first")["gpus"]] == [card]

    world.create(shared("second", 8_000, node))
    wait_bound(world, "second")

    assert world.card_of("second") == card
    assert [pod["spec"]["nodeName"] for pod in world.reservations()].count(node) == 1

    world.end("first", "second")
    wait_until(lambda: not has_left_overs(world, node), "the end of the reservation", seconds=60.0)


@pytest.mark.usefixtures("vramline")
@pytest.mark.parametrize("scheduler", ["vramline", "other"], ids=["placed by us", "placed behind our back"])
@pytest.mark.parametrize("order", ["whole first", "shared first"])
def test_whole_and_shared_pods_never_meet_on_a_card(
    world: World, node: str, scheduler: str, order: str
) -> None:
    add(world, node, SIZE, SIZE)
    pods = [whole("whole", node, scheduler), shared("sharing", 8_000, node)]

    for pod in pods if order == "whole first" else reversed(pods):
        world.create(pod)
        wait_bound(world, pod["metadata"]["name"])
    world.create(shared("large", 16_000, node))
    world.create(shared("further", 7_000, node))
    wait_bound(world, "further")

    assert card_in_use(world, "whole") not in {world.card_of("sharing"), world.card_of("further")}
    assert world.card_of("sharing") == world.card_of("further")
    assert not world.is_bound("large")


@pytest.mark.usefixtures("vramline")
@pytest.mark.parametrize("chosen", [min, max], ids=["the first device", "the last device"])
def test_a_whole_card_of_ours_is_not_given_to_a_pod_that_went_round_us(
    world: World, node: str, chosen: Callable[[list[str]], str]
) -> None:
    """kubelet knows nothing of what pods are told: it may give away only what nobody was told."""
    cards = add(world, node, SIZE, SIZE, SIZE)
    world.kubelets.choose = chosen
    try:
        for name, scheduler in (("ours", "vramline"), ("stranger-1", "other"), ("stranger-2", "other")):
            world.create(whole(name, node, scheduler))
            wait_bound(world, name)
    finally:
        world.kubelets.choose = None
    world.create(whole("late", node, "other"))

    assert sorted(card_in_use(world, name) for name in ("ours", "stranger-1", "stranger-2")) == cards
    assert "nvidia.com/gpu" not in world.pod("ours")["spec"]["containers"][0]["resources"]["limits"]
    wait_until(
        lambda: is_unschedulable(world, "late"), "kube-scheduler to count no device more", seconds=60.0
    )


@pytest.mark.usefixtures("vramline")
def test_a_pod_for_which_kubelet_would_choose_waits_with_the_reason(world: World, node: str) -> None:
    add(world, node, SIZE, SIZE)
    pod = whole("unseen", node, "other")
    pod["spec"]["schedulerName"] = "vramline"  # it was created while the webhook was away
    world.create(pod)

    wait_until(lambda: "KubeletChooses" in told_about(world, "unseen"), "the reason", seconds=60.0)
    assert not world.is_bound("unseen")


@pytest.mark.usefixtures("vramline")
def test_a_pod_that_waits_for_a_device_is_bound_once_kubelet_has_one_again(world: World, node: str) -> None:
    """No object changes then: kube-scheduler, which would look again after five minutes, is woken by us."""
    cards = add(world, node, SIZE, SIZE)
    world.kubelets.add_node(node, cards[0])  # the device of the other card has fallen out
    world.create(shared("holding", 23_000, node))
    wait_bound(world, "holding")
    world.create(shared("waiting", 23_000, node))
    wait_until(lambda: "NoDeviceLeft" in told_about(world, "waiting"), "the reason", seconds=60.0)

    world.kubelets.add_node(node, *cards)

    wait_until(lambda: world.is_bound("waiting"), "waiting to be bound", seconds=120.0)
    assert {world.card_of("holding"), world.card_of("waiting")} == set(cards)


@pytest.mark.usefixtures("vramline")
def test_a_card_advertised_a_hundred_times_never_holds_more_than_itself(world: World, node: str) -> None:
    (card,) = add(world, node, 32_600, replicas=100)
    fraction = shared("quarter", 1, node)
    fraction["metadata"]["annotations"] = {"gpu-fraction": "0.25"}
    for pod in (*(shared(f"sliced-{n}", 8_000, node) for n in range(3)), fraction, whole("slot", node)):
        world.create(pod)
    wait_bound(world, "sliced-0", "sliced-1", "sliced-2", "slot", "quarter")
    world.create(shared("fifth", 8_000, node))

    names = ["sliced-0", "sliced-1", "sliced-2", "quarter", "slot"]
    assert {world.card_of(name) for name in names} == {card}
    promised = promised_on(world, node)
    assert promised == 3 * 8_000 + 32_500 // 4 + 32_500 // 100
    assert not world.is_bound("fifth")


@pytest.mark.usefixtures("vramline")
def test_a_pod_that_went_round_us_on_a_sliced_card_is_counted_and_the_node_says_so(
    world: World, node: str
) -> None:
    (card,) = add(world, node, 32_600, replicas=4)
    world.create(whole("bypassing", node, "other"))
    wait_bound(world, "bypassing")
    world.create(shared("three-quarters", 24_000, node))
    wait_bound(world, "three-quarters")
    world.create(shared("too-much", 1_000, node))

    def said() -> list[str]:
        events = world.admin.get("/apis/events.k8s.io/v1/events").json()["items"]
        return [event["note"] for event in events if event["reason"] == "BypassingPod"]

    wait_until(lambda: any("default/bypassing" in note for note in said()), "the event", seconds=60.0)
    assert any(f"8125 MiB of {card}" in note for note in said())
    assert not world.is_bound("too-much")


def told_about(world: World, name: str) -> str:
    """What is said about a pod in its status."""
    conditions = world.pod(name)["status"].get("conditions", [])
    return " ".join(f"{each.get('reason', '')}: {each.get('message', '')}" for each in conditions)


def is_unschedulable(world: World, name: str) -> bool:
    return "Unschedulable" in told_about(world, name)


def promised_on(world: World, node: str) -> int:
    ledger = world.admin.get(f"/apis/vramline.io/v1alpha1/gpuledgers/{node}").json()
    return sum(claim["mib"] for claims in ledger["spec"]["claims"].values() for claim in claims)
