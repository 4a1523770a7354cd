"""Clusters for questions about GPUs: nodes, reports and pods as their API objects are."""

from typing import Any

import msgspec

from kubernetes_builders import container, node_document, node_object, pod_document, report
from vramline.inference.gpu_cluster import GpuCluster
from vramline.model.claim import Claim
from vramline.units import Mib
from vramline.wire.kubernetes import NodeObject, PodObject
from vramline.wire.times import read_time

__all__ = ["SEEN_AT", "GpuNode", "cluster_of", "gpu_pod", "plain", "promised", "seen", "unseen"]

SEEN_AT = read_time("2026-01-01T00:00:00Z", subject="test", field="now")
Card = dict[str, Any]


class GpuNode(msgspec.Struct, kw_only=True):
    """A node and what its agent said, if it has one."""

    node: NodeObject
    cards: list[Card] | None = None


def card(uuid: str, *, used: int | None, util: int | None, total: int = 40_960, **fields: Any) -> Card:
    found: Card = {"uuid": uuid, "totalMiB": total, "model": "NVIDIA A100-40GB", **fields}
    if used is not None:
        found |= {"usedMiB": used, "processes": [{"pid": 1, "usedMiB": used, "podUID": None}] if used else []}
    if util is not None:
        found |= {"utilizationPercent": util}
    return found


def seen(name: str, *cards: tuple[int | None, int | None], total: int = 40_960, **node: Any) -> GpuNode:
    """A node whose agent saw cards with so many MiB in use and so much utilisation (None: not told)."""
    allocatable = {"nvidia.com/gpu": str(len(cards)), **node.pop("allocatable", {})}
    listed = [
        card(f"GPU-{name}-{index}", used=used, util=util, total=total, index=index)
        for index, (used, util) in enumerate(cards)
    ]
    return GpuNode(node=node_object(name, allocatable=allocatable, **node), cards=listed)


def unseen(name: str, gpus: int, *, total: int = 40_960, devices: int | None = None, **node: Any) -> GpuNode:
    """A node without an agent: labels tell its cards, nobody tells what they do."""
    labels = {"gpu.count": str(gpus), "gpu.memory": str(total), "gpu.product": "NVIDIA-A100-40GB"}
    if devices is not None:
        labels |= {"gpu.replicas": str(devices // gpus), "gpu.sharing-strategy": "time-slicing"}
    return GpuNode(
        node=node_object(name, labels=labels, allocatable={"nvidia.com/gpu": str(devices or gpus)}, **node)
    )


def gpu_pod(
    name: str, where: str | None, gpus: int = 1, *, phase: str = "Running", **fields: Any
) -> PodObject:
    """A pod that asks for whole GPUs, as everybody's do."""
    meta = {"name": name, "uid": f"uid-{name}", **fields.pop("meta", {})}
    document = pod_document(
        container(gpu=str(gpus)),
        meta=meta,
        status={"phase": phase},
        nodeName=where,
        **fields,
    )
    return msgspec.convert(document, PodObject)


def cluster_of(*nodes: GpuNode, pods: tuple[PodObject, ...] = (), age_s: float = 1.0) -> GpuCluster:
    """The cluster, `age_s` after its agents looked."""
    reports = {
        each.node.name: report(*each.cards, node=each.node.name) for each in nodes if each.cards is not None
    }
    cluster = GpuCluster([each.node for each in nodes], reports, now=SEEN_AT + age_s)
    cluster.add_pods(pods, [])
    return cluster


def plain(name: str, devices: str, resource: str = "nvidia.com/gpu") -> GpuNode:
    """A node that advertises devices, and nothing tells the cards."""
    return GpuNode(node=msgspec.convert(node_document(name, allocatable={resource: devices}), NodeObject))


def promised(cluster: GpuCluster, uuid: str, mib: int) -> GpuCluster:
    """The cluster after a promise to somebody whose pod is not there yet."""
    cluster.fleet.adopt([Claim(pod_uid="soon", pod="team/soon", gpu=uuid, mib=Mib(mib))])
    return cluster
