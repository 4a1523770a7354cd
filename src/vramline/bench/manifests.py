"""A cluster as plain manifests, made from a seed: nodes with reports, pods that run, pods that wait.

For measurements of anything that reads manifests. The same seed gives the same objects.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vramline.wire import keys
from vramline.wire.times import format_time

__all__ = ["ClusterShape", "cluster_objects"]

_START = 1_767_225_600.0  # 2026-01-01
_CARDS = (
    ("NVIDIA H100 80GB HBM3", 81_559, 550),
    ("NVIDIA A100-SXM4-40GB", 40_960, 460),
    ("NVIDIA L40S", 46_068, 480),
    ("Tesla T4", 15_360, 450),
)
_AMOUNTS = (2_000, 4_096, 6_000, 8_000, 12_288, 16_000, 24_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterShape:
    """How large a cluster, and what is in it."""

    nodes: int = 1_000
    gpus: int = 8
    """Cards on each node."""
    pods: int = 10_000
    running: float = 0.2
    """Share of the pods that are on a node already."""
    seed: int = 1


def cluster_objects(shape: ClusterShape) -> Iterator[dict[str, Any]]:
    """Yield Node and GpuReport of every machine, then every Pod."""
    chance = random.Random(shape.seed)  # noqa: S311 — a benchmark, not a secret
    for number in range(shape.nodes):
        model = _CARDS[number % len(_CARDS)]
        yield _node(number, model, shape.gpus)
        yield _report(number, model, shape.gpus, chance)
    for number in range(shape.pods):
        if chance.random() < shape.running and shape.nodes:
            yield _running_pod(number, chance.randrange(shape.nodes), chance.randrange(shape.gpus))
        else:
            yield _waiting_pod(number, chance)


def _node(number: int, model: tuple[str, int, int], gpus: int) -> dict[str, Any]:
    name, total, _ = model
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": _node_name(number),
            "labels": {
                "kubernetes.io/hostname": _node_name(number),
                "topology.kubernetes.io/zone": f"zone-{number % 3}",
                keys.GFD_COUNT: str(gpus),
                keys.GFD_MEMORY: str(total),
                keys.GFD_PRODUCT: name.replace(" ", "-"),
                keys.GFD_REPLICAS: "1",
            },
        },
        "status": {
            "allocatable": {"cpu": "128", "memory": "1024Gi", "pods": "110", keys.GPU_COUNT: str(gpus)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _report(number: int, model: tuple[str, int, int], gpus: int, chance: random.Random) -> dict[str, Any]:
    name, total, reserved = model
    cards = []
    for index in range(gpus):
        strangers = chance.choice((0, 0, 0, 0, 0, 0, 0, 2_048))
        processes = [{"pid": 4_711, "usedMiB": strangers, "podUID": None}] if strangers else []
        cards.append(
            {
                "uuid": _uuid(number, index),
                "index": index,
                "model": name,
                "totalMiB": total,
                "reservedMiB": reserved,
                "usedMiB": strangers,
                "utilizationPercent": chance.randrange(100),
                "health": "Healthy",
                "processes": processes,
            }
        )
    return {
        "apiVersion": f"{keys.GROUP}/v1alpha1",
        "kind": "GpuReport",
        "metadata": {"name": _node_name(number)},
        "status": {"observedAt": format_time(_START + 86_400), "platform": "x86", "gpus": cards},
    }


def _running_pod(number: int, node: int, index: int) -> dict[str, Any]:
    pod = _pod(number, {"cpu": "2", "memory": "8Gi"}, {keys.VRAM: "2000"})
    pod["metadata"]["annotations"][keys.HAMI_ALLOCATED] = f"{_uuid(node, index)},NVIDIA,2000,0:;"
    pod["spec"]["nodeName"] = _node_name(node)
    pod["status"] = {"phase": "Running", "startTime": format_time(_START + number)}
    return pod


def _waiting_pod(number: int, chance: random.Random) -> dict[str, Any]:
    spelling = chance.randrange(6)
    amount = chance.choice(_AMOUNTS)
    host = {"cpu": str(chance.choice((1, 2, 4, 8))), "memory": f"{chance.choice((4, 16, 32))}Gi"}
    match spelling:
        case 0:
            pod = _pod(number, host, {keys.VRAM: f"{amount}Mi"})
        case 1:
            pod = _pod(number, host, {keys.KAI_MEMORY: str(amount)})
        case 2:
            pod = _pod(number, host, {keys.KAI_FRACTION: chance.choice(("0.25", "0.5"))})
        case 3:
            pod = _pod(number, {**host, keys.GPU_COUNT: "1", keys.GPU_MEMORY_MIB: str(amount)}, {})
        case 4:
            pod = _pod(number, {**host, keys.GPU_COUNT: str(chance.choice((1, 2, 4)))}, {})
        case _:
            pod = _pod(number, host, {})
    if chance.random() < 0.1:
        pod["spec"]["nodeSelector"] = {"topology.kubernetes.io/zone": f"zone-{chance.randrange(3)}"}
    return pod


def _pod(number: int, limits: dict[str, str], annotations: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number:06d}",
            "namespace": f"team-{number % 10}",
            "uid": f"00000000-0000-4000-8000-{number:012d}",
            "creationTimestamp": format_time(_START + number),
            "annotations": annotations,
        },
        "spec": {"containers": [{"name": "main", "image": "example/main", "resources": {"limits": limits}}]},
    }


def _node_name(number: int) -> str:
    return f"node-{number:05d}"


def _uuid(node: int, index: int) -> str:
    return f"GPU-{node:08x}-0000-4000-8000-{index:012x}"
