"""Thousands of nodes, reports and pods at the API server, over a few connections that stay open."""

import asyncio
import datetime as dt
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import httpx

from controlplane.kubernetes import gpu_node
from controlplane.processes import wait_until
from controlplane.throughput.loops import run_quickly
from controlplane.vramline import gpu_pod
from vramline.kube.client import KubeClient, Patch
from vramline.kube.objects import NODES, PODS, REPORTS, ObjectKey
from vramline.kube.target import find_target
from vramline.wire import keys
from vramline.wire.allocation import decode_allocation

__all__ = ["GPUS_PER_NODE", "add_nodes", "add_pods", "over_promised", "remove_pods", "start_anew"]

GPUS_PER_NODE = 8
_CARD_MIB = 46_068
_ASK_MIB = 8_000
_LEDGERS = "/apis/vramline.io/v1alpha1/gpuledgers"
_AT_ONCE = 16
"""Requests under way at a time."""


def add_nodes(kubeconfig: Path, count: int) -> None:
    """Add nodes of eight cards each, with what their agents would report."""

    async def add(client: KubeClient, number: int) -> None:
        name = f"gpu-node-{number:05d}"
        node = gpu_node(name, allocatable={"nvidia.com/gpu": str(GPUS_PER_NODE)})
        await client.create(NODES, node)
        await client.create(REPORTS, _report(name))
        await client.patch(REPORTS, ObjectKey(name), Patch({"status": _status(name)}), subresource="status")

    run_quickly(_for_each(kubeconfig, range(count), add))


def add_pods(kubeconfig: Path, namespace: str, count: int, *, scheduler: str) -> None:
    """Add pods that ask for part of a card, for a scheduler that need not run yet."""

    async def add(client: KubeClient, number: int) -> None:
        pod = gpu_pod(f"pod-{number:05d}", _ASK_MIB)
        pod["spec"]["schedulerName"] = scheduler
        await client.create(PODS, pod, namespace=namespace)

    run_quickly(_for_each(kubeconfig, range(count), add))


def start_anew(kubeconfig: Path, admin: httpx.Client, nodes: int) -> None:
    """Let every case begin alike: no promise is left from the last one, and every card was just looked at."""
    admin.request("DELETE", _LEDGERS, timeout=120.0).raise_for_status()

    async def look(client: KubeClient, number: int) -> None:
        name = f"gpu-node-{number:05d}"
        await client.patch(REPORTS, ObjectKey(name), Patch({"status": _status(name)}), subresource="status")

    run_quickly(_for_each(kubeconfig, range(nodes), look))


def over_promised(admin: httpx.Client, namespace: str) -> list[str]:
    """Return cards of which pods of a namespace were given more than there is, and pods without any."""
    pods = admin.get(f"/api/v1/namespaces/{namespace}/pods", timeout=120.0).raise_for_status().json()["items"]
    given, bare = Counter[str](), list[str]()
    for pod in pods:
        text = pod["metadata"].get("annotations", {}).get(keys.ALLOCATION)
        if text is None:
            bare.append(pod["metadata"]["name"])
            continue
        for share in decode_allocation(text, subject=pod["metadata"]["name"]).gpus:
            given[share.uuid] += share.mib
    return [*bare, *(card for card, mib in given.items() if mib > _CARD_MIB)]


def remove_pods(admin: httpx.Client, namespace: str) -> None:
    """Delete all pods of a namespace at once."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    options = {"gracePeriodSeconds": 0}
    admin.request("DELETE", pods, json=options, timeout=120.0).raise_for_status()
    wait_until(lambda: not admin.get(pods, params={"limit": 1}).json()["items"], f"{namespace} to be empty")


async def _for_each(
    kubeconfig: Path, numbers: Iterable[int], act: Callable[[KubeClient, int], Awaitable[None]]
) -> None:
    rest = iter(numbers)

    async def work(client: KubeClient) -> None:
        for number in rest:
            await act(client, number)

    target = find_target({}, kubeconfig=kubeconfig)
    async with KubeClient(target, rng=random.Random(1)) as client, asyncio.TaskGroup() as tasks:
        for _ in range(_AT_ONCE):
            tasks.create_task(work(client))


def _report(name: str) -> dict[str, Any]:
    return {"apiVersion": "vramline.io/v1alpha1", "kind": "GpuReport", "metadata": {"name": name}}


def _status(name: str) -> dict[str, Any]:
    gpus = [
        {
            "uuid": f"GPU-{name}-{index}",
            "index": index,
            "model": "NVIDIA L40S",
            "health": "Healthy",
            "totalMiB": _CARD_MIB,
            "usedMiB": 0,
            "processes": [],
        }
        for index in range(GPUS_PER_NODE)
    ]
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"observedAt": now, "platform": "x86", "gpus": gpus}
