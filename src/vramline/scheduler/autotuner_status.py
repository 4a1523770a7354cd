"""The cluster's GPUs in the JSON that the LLM inference autotuner's dashboard reads.

One entry is one physical card. As there, the figures of a card that nobody saw lately are absent, and
`has_metrics` is false; what it does not know comes last.
"""

import datetime as dt
import socket

from vramline.explain.figures import is_fresh
from vramline.model.cluster import Cluster
from vramline.model.gpu import PhysicalGpu
from vramline.model.node import Node
from vramline.model.observation import Observation, Unknown
from vramline.model.reason import FITS

__all__ = ["tell_autotuner"]


def tell_autotuner(cluster: Cluster, *, hostname: str | None = None) -> dict[str, object]:
    """Return what `GET /api/dashboard/cluster-gpu-status` answers; `hostname` is this machine's."""
    here = socket.gethostname() if hostname is None else hostname
    nodes = sorted((node for node in cluster.fleet.nodes if node.gpus), key=lambda node: node.name)
    entries = [
        _tell_card(cluster, node, gpu, here)
        for node in nodes
        for gpu in sorted(node.gpus, key=lambda gpu: (gpu.index, gpu.uuid))
    ]
    return {
        "available": True,
        "mode": "cluster",
        "nodes": entries,
        "total_gpus": len(entries),
        "total_allocatable_gpus": sum(entry["allocatable"] == 1 for entry in entries),
        "local_hostname": here,
        "timestamp": dt.datetime.fromtimestamp(cluster.now(), tz=dt.UTC).isoformat(),
    }


def _tell_card(cluster: Cluster, node: Node, gpu: PhysicalGpu, here: str) -> dict[str, object]:
    fleet, now = cluster.fleet, cluster.now()
    columns, row = fleet.columns, fleet.columns.row_of[gpu.uuid]
    seen = fleet.observation(gpu.uuid)
    fresh = is_fresh(fleet, row, now=now, max_age_s=cluster.rules_for(None).max_age_s)
    whole = bool(columns.static_code[row] == FITS and columns.sharers[row] == 0)
    entry: dict[str, object] = {
        "index": gpu.index,
        "node_name": node.name,
        "name": gpu.model or "Unknown",
        "capacity": 1,
        "allocatable": int(whole and _takes_pods(cluster, node)),
        "is_local": node.name == here,
        **_metrics(gpu, seen if fresh else None),
        "uuid": gpu.uuid,
        "source": "" if seen is None else seen.source.value,
    }
    if seen is not None:
        entry["age_s"] = round(now - seen.at, 1)
    return entry


def _metrics(gpu: PhysicalGpu, seen: Observation | None) -> dict[str, object]:
    """Return the figures that the card told; without its memory it has no metrics at all."""
    if seen is None or isinstance(seen.used, Unknown):
        return {"has_metrics": False}
    metrics: dict[str, object] = {
        "memory_total_mb": gpu.total,
        "memory_used_mb": seen.used,
        "memory_free_mb": gpu.usable - seen.used,
        "memory_usage_percent": round(seen.used / gpu.total * 100, 1),
        "has_metrics": True,
    }
    told = {"utilization_percent": seen.utilization_percent, "temperature_c": seen.temperature_c}
    return metrics | {name: value for name, value in told.items() if not isinstance(value, Unknown)}


def _takes_pods(cluster: Cluster, node: Node) -> bool:
    number = cluster.fleet.node_number(node.name)
    sound = number is not None and cluster.fleet.node_codes()[number] == FITS
    closed = any(taint.effect in {"NoSchedule", "NoExecute"} for taint in node.taints)
    return bool(sound and node.ready and not node.cordoned and not closed)
