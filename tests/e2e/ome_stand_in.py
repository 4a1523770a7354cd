"""A tiny stand-in for OME's controller: it makes pods of an InferenceService, where OME would make workloads.

It merges the runtime's engine with the service's as OME does: maps are merged, lists of words replaced. Pods
go through our admission, as the webhook would have it.
"""

from collections.abc import Mapping
from typing import Any

import httpx

from json_patch import apply_patch
from vramline.wire.admission import AdmissionOptions, Admitted, plan_admission

__all__ = ["OMES_KINDS", "make_pods", "set_ready"]

OMES_KINDS = "/apis/ome.io/v1beta1"
_NOT_OF_A_POD = {
    "runner",
    "leader",
    "worker",
    "minReplicas",
    "maxReplicas",
    "annotations",
    "labels",
    "deploymentStrategy",
    "size",
}
_MERGE = {"Content-Type": "application/merge-patch+json"}


def make_pods(admin: httpx.Client, namespace: str, name: str) -> list[str]:
    """Make the pods of a service, and return their names."""
    service = admin.get(f"{OMES_KINDS}/namespaces/{namespace}/inferenceservices/{name}").raise_for_status()
    spec = service.json()["spec"]
    runtime = admin.get(f"{OMES_KINDS}/clusterservingruntimes/{spec['runtime']['name']}").raise_for_status()
    engine = merge(runtime.json()["spec"]["engineConfig"], spec["engine"])
    parts = [("engine", engine)]
    if "leader" in engine:
        workers = engine["worker"].get("size", 1)
        parts = [("leader", engine["leader"]), *((f"worker-{n}", engine["worker"]) for n in range(workers))]
    names = []
    for suffix, part in parts:
        pod = pod_of(f"{name}-{suffix}", part, engine.get("annotations") or {}, service=name)
        admin.post(f"/api/v1/namespaces/{namespace}/pods", json=pod).raise_for_status()
        names.append(pod["metadata"]["name"])
    return names


def pod_of(name: str, part: dict[str, Any], annotations: dict[str, str], *, service: str) -> dict[str, Any]:
    """Return one pod, as admission leaves it."""
    spec = {key: value for key, value in part.items() if key not in _NOT_OF_A_POD}
    spec["containers"] = [part["runner"]]
    labels = {"ome.io/inferenceservice": service, "component": "engine"}
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": dict(annotations)},
        "spec": spec,
    }
    planned = plan_admission(pod, operation="CREATE", options=AdmissionOptions())
    assert isinstance(planned, Admitted), planned
    return apply_patch(pod, planned.patch)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a map with another one laid over it."""
    found = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merge(found[key], value) if both else value
    return found


def set_ready(admin: httpx.Client, namespace: str, name: str) -> None:
    """Say of a service what OME says once its engine answers."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    patch = {"status": {"url": f"http://{name}.{namespace}.example", "conditions": [ready]}}
    path = f"{OMES_KINDS}/namespaces/{namespace}/inferenceservices/{name}/status"
    admin.patch(path, json=patch, headers=_MERGE).raise_for_status()
