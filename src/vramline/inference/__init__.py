"""Inference services: what a model needs, where it fits, and a cluster's GPUs as one question.

The names below are the public ones. They are imported when they are first asked for, so that the
arithmetic of an estimate does not pay for a Kubernetes client.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramline.inference.discovery import (
        GPUInfo,
        NodeGPUSummary,
        find_best_node_for_deployment,
        get_cluster_gpu_status,
        get_node_gpu_summaries,
    )
    from vramline.inference.gpu_cluster import GpuCluster, read_gpu_cluster
    from vramline.inference.ome import OMEController
    from vramline.inference.other_eyes import Sources

__all__ = [
    "GPUInfo",
    "GpuCluster",
    "NodeGPUSummary",
    "OMEController",
    "Sources",
    "find_best_node_for_deployment",
    "get_cluster_gpu_status",
    "get_node_gpu_summaries",
    "read_gpu_cluster",
]

_HOMES = {
    "GPUInfo": "discovery",
    "NodeGPUSummary": "discovery",
    "find_best_node_for_deployment": "discovery",
    "get_cluster_gpu_status": "discovery",
    "get_node_gpu_summaries": "discovery",
    "GpuCluster": "gpu_cluster",
    "read_gpu_cluster": "gpu_cluster",
    "OMEController": "ome",
    "Sources": "other_eyes",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
