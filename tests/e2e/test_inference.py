"""The Python API against a real API server."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from controlplane.kubernetes import gpu_node
from controlplane.plane import ControlPlane
from controlplane.vramline import add_gpu_node, apply_crds, report_cards
from vramline.inference import (
    find_best_node_for_deployment,
    get_cluster_gpu_status,
    get_node_gpu_summaries,
)


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        client.post(
            "/api/v1/nodes", json=gpu_node("plain", allocatable={"nvidia.com/gpu": "8"})
        ).raise_for_status()
        yield client


@pytest.fixture
def kubeconfig(plane: ControlPlane, admin: httpx.Client) -> str:
    admin.get("/version").raise_for_status()
    return str(plane.folder / "admin.kubeconfig")


def test_a_cluster_without_vramlines_kinds_has_devices_and_no_known_card(kubeconfig: str) -> None:
    summaries = get_node_gpu_summaries(kubeconfig=kubeconfig)

    assert (summaries["plain"].total_gpus, summaries["plain"].unknown_gpu_count) == (8, 8)
    assert find_best_node_for_deployment(kubeconfig=kubeconfig) is None


def test_reports_and_pods_of_the_cluster_are_the_answer(admin: httpx.Client, kubeconfig: str) -> None:
    apply_crds(admin)
    add_gpu_node(admin, "n1", 40_960, 40_960)
    add_gpu_node(admin, "n2", 40_960)
    idle = {"totalMiB": 40_960, "usedMiB": 0, "processes": [], "utilizationPercent": 0}
    report_cards(admin, "n2", [idle])
    pod = {
        "metadata": {"name": "holds"},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2"}}}],
        },
    }
    admin.post("/api/v1/namespaces/default/pods", json=pod).raise_for_status()

    infos = [info for info in get_cluster_gpu_status(kubeconfig=kubeconfig) if info.has_metrics]

    assert [(info.uuid, info.is_allocatable, info.state) for info in infos] == [
        ("GPU-n1-0", False, "known-busy"),
        ("GPU-n1-1", False, "known-busy"),
        ("GPU-n2-0", True, "known-free"),
    ]
    assert find_best_node_for_deployment(1, kubeconfig=kubeconfig) == "n2"
    assert find_best_node_for_deployment(2, kubeconfig=kubeconfig) is None


def test_a_caller_inside_an_event_loop_gets_its_answer_too(kubeconfig: str) -> None:
    async def inside() -> str | None:
        return find_best_node_for_deployment(1, kubeconfig=kubeconfig)

    assert asyncio.run(inside()) == "n2"
