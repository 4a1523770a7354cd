"""Commands in containers through a real API server and a real kubelet, and the cards that they tell."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from controlplane.kubernetes import wait_for_pod
from controlplane.plane import ControlPlane
from realnode.machine import Programs
from realnode.node import RealNode, real_node
from realnode.pods import busybox_pod, is_running
from vramline.inference import Sources, get_cluster_gpu_status, read_gpu_cluster
from vramline.inference.gpu_cluster import find_cluster
from vramline.inference.other_eyes import keeper_of
from vramline.kube.failures import ApiError, DeniedError, NotFoundError
from vramline.kube.objects import ObjectKey
from vramline.kube.pod_exec import ExecResult, PodExec

LABELS = {
    "nvidia.com/gpu.count": "1",
    "nvidia.com/gpu.memory": "24000",
    "nvidia.com/gpu.product": "NVIDIA-A10",
    "nvidia.com/gpu.replicas": "4",
}
CARD = "0, GPU-real, NVIDIA A10, 24000, 6144, 45, 51"
SMI = f"printf '#!/bin/sh\\necho \"{CARD}\"\\n' > /bin/nvidia-smi; chmod +x /bin/nvidia-smi"
PODS = "/api/v1/namespaces/default/pods"
POD = ObjectKey("server", "default")
HERE = Sources(this_machine=False)


@pytest.fixture(scope="module")
def node(plane: ControlPlane, programs: Programs) -> Iterator[RealNode]:
    with real_node(plane, programs, name="localhost", labels=LABELS) as running:
        yield running


@pytest.fixture(scope="module")
def admin(plane: ControlPlane, node: RealNode) -> Iterator[httpx.Client]:
    with plane.client() as client:
        pod: dict[str, Any] = busybox_pod("server", SMI, annotations={"vramline.io/vram": "8000"})
        pod["spec"]["nodeName"] = node.name
        client.post(PODS, json=pod).raise_for_status()
        wait_for_pod(client, "default", "server", is_running)
        yield client


@pytest.fixture
def kubeconfig(plane: ControlPlane, admin: httpx.Client) -> str:
    admin.get("/version").raise_for_status()
    return str(plane.folder / "admin.kubeconfig")


def run(kubeconfig: str, *command: str, pod: ObjectKey = POD) -> ExecResult:
    return asyncio.run(PodExec(find_cluster(kubeconfig)).run(pod, "main", command, timeout_s=30.0))


def test_a_command_says_what_it_wrote_and_how_it_ended(kubeconfig: str) -> None:
    assert run(kubeconfig, "echo", "two words", "and a third") == ExecResult("two words and a third\n", "", 0)
    failed = run(kubeconfig, "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (failed.output, failed.code) == ("out\n", 7)
    assert failed.errors.startswith("err\n")


def test_a_program_that_is_not_there_is_no_answer(kubeconfig: str) -> None:
    try:
        done = run(kubeconfig, "no-such-program")
    except ApiError:
        return
    assert done.code != 0


def test_a_pod_that_is_not_there_is_not_found(kubeconfig: str) -> None:
    with pytest.raises(NotFoundError):
        run(kubeconfig, "true", pod=ObjectKey("nobody", "default"))


def test_who_may_not_enter_is_denied(plane: ControlPlane, admin: httpx.Client) -> None:
    admin.get("/version").raise_for_status()
    stranger = str(plane.issue_user("stranger", "stranger"))

    with pytest.raises(DeniedError):
        run(stranger, "true")


def test_the_card_of_a_node_without_an_agent_is_told_by_the_pod_on_it(kubeconfig: str) -> None:
    [card] = get_cluster_gpu_status(cluster=read_gpu_cluster(kubeconfig, sources=HERE))

    assert (card.node_name, card.gpu_name, card.memory_used_mb) == ("localhost", "NVIDIA-A10", 6_144)
    assert (card.utilization_percent, card.temperature_c) == (45, 51)
    assert (card.source, card.state) == ("nvidia-smi in a pod", "known-busy")


def test_who_asks_again_at_once_is_answered_from_memory(kubeconfig: str) -> None:
    keeper_of(find_cluster(kubeconfig).cluster.server).keep_s = 600.0  # however busy this machine is
    first = get_cluster_gpu_status(cluster=read_gpu_cluster(kubeconfig, sources=HERE))[0]
    run(kubeconfig, "rm", "/bin/nvidia-smi")

    second = get_cluster_gpu_status(cluster=read_gpu_cluster(kubeconfig, sources=HERE))[0]

    assert second.memory_used_mb == first.memory_used_mb == 6_144
