"""Short ways to write Kubernetes objects as a YAML parser would return them, for tests of what reads them."""

from typing import Any

import msgspec

from vramline.wire import keys
from vramline.wire.hami import RegisteredGpu, encode_register
from vramline.wire.kubernetes import NodeObject, PodObject
from vramline.wire.report_v1alpha1 import GpuReport, decode_report

__all__ = [
    "container",
    "hami_card",
    "hami_register",
    "node_document",
    "node_object",
    "pod_document",
    "pod_object",
    "report",
    "report_document",
    "workload_document",
]

Document = dict[str, Any]

API_VERSIONS = {"Job": "batch/v1", "GpuReport": "vramline.io/v1alpha1"}


def container(name: str = "main", *, requests: Document | None = None, **limits: Any) -> Document:
    """A container; limits are given as `gpu=1, gpumem=8000`, or whole in a mapping with `limits=`."""
    named = limits.pop("limits", {})
    fields: Document = {key: limits.pop(key) for key in ("restartPolicy", "ports") if key in limits}
    words = {f"nvidia.com/{key.replace('_', '-')}": value for key, value in limits.items()}
    resources = {"limits": {**named, **words}, "requests": requests or {}}
    return {"name": name, "resources": resources, **fields}


def pod_document(
    *containers: Document,
    annotations: Document | None = None,
    labels: Document | None = None,
    meta: Document | None = None,
    status: Document | None = None,
    **spec: Any,
) -> Document:
    """A v1 Pod called ns/p."""
    metadata = {"name": "p", "namespace": "ns", "annotations": annotations, "labels": labels, **(meta or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": list(containers) or [{"name": "main"}], **spec},
        "status": status,
    }


def pod_object(*containers: Document, **fields: Any) -> PodObject:
    """The same, typed."""
    return msgspec.convert(pod_document(*containers, **fields), PodObject)


def node_document(
    name: str = "n1",
    *,
    labels: Document | None = None,
    annotations: Document | None = None,
    allocatable: Document | None = None,
    status: Document | None = None,
    **spec: Any,
) -> Document:
    """A v1 Node; labels of GPU-feature-discovery may be given without their domain: `gpu.count`."""
    full = {key if "/" in key else f"nvidia.com/{key}": value for key, value in (labels or {}).items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": full, "annotations": annotations},
        "spec": spec,
        "status": {"allocatable": allocatable, **(status or {})},
    }


def node_object(name: str = "n1", **fields: Any) -> NodeObject:
    """The same, typed."""
    return msgspec.convert(node_document(name, **fields), NodeObject)


def hami_card(**fields: Any) -> RegisteredGpu:
    """A healthy card of 32,600 MiB in HAMi's register, shared ten times."""
    base = {"id": "GPU-a", "count": 10, "devmem": 32600, "devcore": 100, "type": "NVIDIA A10", "health": True}
    return RegisteredGpu(**{**base, **fields})


def hami_register(*cards: RegisteredGpu) -> dict[str, str]:
    """The annotation of a node that registers these cards."""
    return {keys.HAMI_REGISTER: encode_register(cards)}


def report_document(*gpus: Document, node: str = "n1", **status: Any) -> Document:
    """A GpuReport of these cards, seen at 2026-01-01T00:00:00Z."""
    return {
        "apiVersion": "vramline.io/v1alpha1",
        "kind": "GpuReport",
        "metadata": {"name": node},
        "status": {"observedAt": "2026-01-01T00:00:00Z", "gpus": list(gpus), **status},
    }


def report(*gpus: Document, **fields: Any) -> GpuReport:
    """The same, decoded."""
    return decode_report(report_document(*gpus, **fields))


def workload_document(kind: str = "Deployment", name: str = "web", **spec: Any) -> Document:
    """A workload in namespace ns whose pods ask for 8,000 MiB."""
    template = {
        "metadata": {"annotations": {"gpu-memory": "8000"}},
        "spec": {"containers": [{"name": "main"}]},
    }
    return {
        "apiVersion": API_VERSIONS.get(kind, "apps/v1"),
        "kind": kind,
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"template": template, **spec},
    }
