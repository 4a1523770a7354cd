"""Boards and servers in one cluster: a reservation pod gets what a board needs there, and nowhere else."""

from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.kubelets import run_kubelets
from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import REPORTS, VramlineProcess, extender_configuration, gpu_pod, run_scheduler
from e2e.reservation_world import RESERVES, World, open_world

MERGE = {"Content-Type": "application/merge-patch+json"}
SIZE = 24_000
FOLDER = "/usr/lib/aarch64-linux-gnu/nvidia"
NODES = ("server", "labelled", "reported")
"""A server; a board by its operator's label; a board by its agent's word."""


@pytest.fixture(scope="module")
def world(plane: ControlPlane) -> Iterator[World]:
    with plane.client() as admin, run_kubelets(plane) as kubelets, open_world(admin, kubelets) as opened:
        for name in NODES:
            opened.add_node(name, SIZE)
            labels = {"kubernetes.io/hostname": name}
            labels |= {"vramline.io/platform": "tegra"} if name == "labelled" else {}
            node = {"metadata": {"labels": labels}}
            admin.patch(f"/api/v1/nodes/{name}", json=node, headers=MERGE).raise_for_status()
        word = {"status": {"platform": "tegra"}}
        admin.patch(f"{REPORTS}/reported/status", json=word, headers=MERGE).raise_for_status()
        yield opened


@pytest.fixture(scope="module")
def vramline(plane: ControlPlane, world: World) -> Iterator[VramlineProcess]:
    with run_scheduler(plane, env=RESERVES) as process:
        plane.start_scheduler(extender_configuration(process.port))
        for name in NODES:
            pod = gpu_pod(f"on-{name}", SIZE // 3)
            pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": name}
            world.create(pod)
        yield process


def reservation_on(world: World, vramline: VramlineProcess, node: str) -> dict[str, Any]:
    """The spec of the reservation pod on a node, once the node's pod is bound to the card it holds."""
    wait_until(lambda: world.is_bound(f"on-{node}"), "the bind", seconds=60.0, children=(vramline.child,))
    [pod] = [each for each in world.reservations() if each["spec"]["nodeName"] == node]
    assert pod["metadata"]["annotations"]["vramline.io/reserved-gpu"] == world.card_of(f"on-{node}")
    spec: dict[str, Any] = pod["spec"]
    return spec


def host_paths(spec: dict[str, Any]) -> dict[str, str]:
    """What of the machine is inside, and where."""
    volumes = {
        each["name"]: each["hostPath"]["path"] for each in spec.get("volumes", []) if "hostPath" in each
    }
    mounts = {each["name"]: each for each in spec["containers"][0].get("volumeMounts", [])}
    assert all(mounts[name]["readOnly"] for name in volumes)
    return {path: mounts[name]["mountPath"] for name, path in volumes.items()}


@pytest.mark.parametrize("node", ["labelled", "reported"])
def test_on_a_board_it_gets_the_libraries_read_only_and_no_privilege(
    world: World, vramline: VramlineProcess, node: str
) -> None:
    spec = reservation_on(world, vramline, node)
    [container] = spec["containers"]

    assert host_paths(spec) == {FOLDER: FOLDER}
    assert {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"} in container["env"]
    assert "LD_LIBRARY_PATH" not in {each["name"] for each in container["env"]}
    assert not container["securityContext"].get("privileged")


def test_on_a_server_it_gets_none_of_that(world: World, vramline: VramlineProcess) -> None:
    spec = reservation_on(world, vramline, "server")
    [container] = spec["containers"]

    assert host_paths(spec) == {}
    assert [each["name"] for each in container["env"]] == ["POD_NAME", "POD_NAMESPACE"]
    assert "supplementalGroups" not in spec["securityContext"]
