"""Plain Kubernetes objects and waits, for tests that talk to the API server themselves."""

from collections.abc import Callable
from typing import Any

import httpx

from controlplane.processes import wait_until

__all__ = ["gpu_node", "wait_for_pod"]


def gpu_node(name: str, *, allocatable: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    """Return a ready Node; `labels` and `annotations` as keywords."""
    resources = {"cpu": "64", "memory": "256Gi", "pods": "500", **(allocatable or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **metadata},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def wait_for_pod(
    client: httpx.Client, namespace: str, name: str, is_so: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Return the pod once a condition holds for it."""
    pod: dict[str, Any] = {}

    def holds() -> bool:
        answer = client.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        pod.clear()
        pod.update(answer.json())
        return answer.is_success and is_so(pod)

    wait_until(holds, f"pod {namespace}/{name}", seconds=60.0)
    return pod
