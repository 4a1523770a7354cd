"""Sharing beside NVIDIA's device plugin: real API server and kube-scheduler, stand-in kubelets.

kubelet gives whichever device it likes; shared pods land on cards that kubelet has given away for them, and
whole-GPU pods, whoever places them, never on those.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.kubelets import run_kubelets
from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import VramlineProcess, extender_configuration, gpu_pod, run_scheduler
from e2e.reservation_world import RESERVES, Document, World, open_world

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
        configuration["profiles"].append({"schedulerName": "other"})
        configuration |= {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
        resources = [{"name": "nvidia.com/gpu", "ignoredByScheduler": False}]
        configuration["extenders"][0]["managedResources"] += resources
        plane.start_scheduler(configuration)
        yield process


@pytest.fixture
def node(world: World, request: pytest.FixtureRequest) -> Iterator[str]:
    """A name for a node of this test's own; its pods are cleared away."""
    name = f"n{abs(hash(request.node.name)) % 10_000}"
    yield name
    pods = world.admin.get("/api/v1/namespaces/default/pods").json()["items"]
    for pod in pods:
        if pod["spec"].get("nodeName", name) == name:
            world.admin.delete(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}")
    wait_until(lambda: not has_left_overs(world, name), "the end of all reservations", seconds=60.0)
    world.admin.delete(f"/api/v1/nodes/{name}")


def has_left_overs(world: World, node: str) -> bool:
    world.report()
    return any(pod["spec"]["nodeName"] == node for pod in world.reservations())


def shared(name: str, mib: int, node: str) -> Document:
    pod = gpu_pod(name, mib)
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return pod


def whole(name: str, node: str, scheduler: str = "vramline") -> Document:
    """A pod that takes a card from kubelet: through us, or through a scheduler that does not know us."""
    limits: dict[str, Any] = {"nvidia.com/gpu": "1"}
    return {
        "metadata": {"name": name},
        "spec": {
            "schedulerName": scheduler,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{"name": "main", "image": "example", "resources": {"limits": limits}}],
        },
    }


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
