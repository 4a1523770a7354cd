"""Vramline beside a test control plane: its objects, its process, and kube-scheduler calling it."""

import datetime as dt
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from controlplane.kubernetes import gpu_node
from controlplane.plane import ControlPlane
from controlplane.processes import Child, wait_until

__all__ = [
    "VramlineProcess",
    "add_gpu_node",
    "apply_crds",
    "extender_configuration",
    "gpu_pod",
    "report_cards",
    "run_scheduler",
    "spawn_scheduler",
]

INSTALL = Path(__file__).parents[2] / "src" / "vramline" / "install"
REPORTS = "/apis/vramline.io/v1alpha1/gpureports"


def apply_crds(admin: httpx.Client) -> None:
    """Install our kinds and wait until they are served, and make the namespace of the Lease."""
    for path in sorted((INSTALL / "crds").glob("*.yaml")):
        crd = yaml.safe_load(path.read_text())
        admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=crd).raise_for_status()
    for kind in ("gpureports", "gpuledgers", "bindrequests"):
        wait_until(lambda kind=kind: admin.get(f"/apis/vramline.io/v1alpha1/{kind}").is_success, kind)  # type: ignore[misc]
    admin.post("/api/v1/namespaces", json={"metadata": {"name": "vramline-system"}}).raise_for_status()


def add_gpu_node(admin: httpx.Client, name: str, *totals: int, advertised: int | None = None) -> None:
    """Add a node whose agent reports idle cards of these sizes, seen just now."""
    devices = str(len(totals) if advertised is None else advertised)
    node = gpu_node(name, allocatable={"nvidia.com/gpu": devices})
    admin.post("/api/v1/nodes", json=node).raise_for_status()
    report_cards(admin, name, [{"totalMiB": total, "usedMiB": 0, "processes": []} for total in totals])


def report_cards(admin: httpx.Client, name: str, cards: list[dict[str, Any]]) -> None:
    """Write what the agent of a node would: these cards, seen now; all processes here share one clock."""
    answer = admin.get(REPORTS + "/" + name)
    seen_at = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    gpus = [
        {"uuid": f"GPU-{name}-{index}", "index": index, "model": "NVIDIA L40S", "health": "Healthy", **card}
        for index, card in enumerate(cards)
    ]
    report: dict[str, Any] = {
        "apiVersion": "vramline.io/v1alpha1",
        "kind": "GpuReport",
        "metadata": {"name": name},
    }
    if not answer.is_success:
        admin.post(REPORTS, json=report).raise_for_status()
    report["status"] = {"observedAt": seen_at, "platform": "x86", "gpus": gpus}
    patch = {"status": report["status"]}
    headers = {"Content-Type": "application/merge-patch+json"}
    admin.patch(f"{REPORTS}/{name}/status", json=patch, headers=headers).raise_for_status()


def gpu_pod(name: str, mib: int, **metadata: Any) -> dict[str, Any]:
    """Return a pod as admission leaves it: asking in MiB, sent to our scheduler."""
    managed = {"vramline.io/managed": "1"}
    return {
        "metadata": {"name": name, "annotations": {"vramline.io/vram": str(mib)}, **metadata},
        "spec": {
            "schedulerName": "vramline",
            "containers": [
                {"name": "main", "image": "example", "resources": {"limits": managed, "requests": managed}}
            ],
        },
    }


def extender_configuration(port: int) -> dict[str, Any]:
    """Return a KubeSchedulerConfiguration whose only profile asks Vramline on this port."""
    return {
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": "vramline"}],
        "extenders": [
            {
                "urlPrefix": f"http://127.0.0.1:{port}",
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "preemptVerb": "preempt",
                "bindVerb": "bind",
                "weight": 10,
                "httpTimeout": "30s",
                "nodeCacheCapable": True,
                "managedResources": [{"name": "vramline.io/managed", "ignoredByScheduler": True}],
            }
        ],
    }


class VramlineProcess:
    """A running `vramline scheduler`."""

    def __init__(self, child: Child, port: int) -> None:
        self.child = child
        self.port = port
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30.0)

    def leads(self) -> bool:
        """Whether it has said that it leads, and not since that it no longer does."""
        log = self.child.log.read_text()
        return log.rfind("scheduler.leads") > log.rfind("scheduler.follows")


def spawn_scheduler(
    plane: ControlPlane,
    name: str,
    *,
    kubeconfig: Path | None = None,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Child:
    """Start the real command against the control plane; it listens on a free port unless told otherwise."""
    arguments = [sys.executable, "-m", "vramline", "scheduler"]
    arguments += ["--kubeconfig", str(kubeconfig or plane.folder / "admin.kubeconfig")]
    arguments += [*options, *(() if "--listen" in options else ("--listen", "127.0.0.1:0"))]
    given = {"VRAMLINE_LOG_FORMAT": "json", "PATH": os.environ["PATH"], **(env or {})}
    return Child(name, arguments, plane.folder / f"{name}.log", given)


@contextmanager
def run_scheduler(
    plane: ControlPlane,
    *,
    name: str = "vramline",
    kubeconfig: Path | None = None,
    leads: bool = True,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Iterator[VramlineProcess]:
    """Run the real command against the control plane until the block ends."""
    child = spawn_scheduler(plane, name, kubeconfig=kubeconfig, options=options, env=env)
    log = child.log
    try:
        wait_until(lambda: "scheduler.started" in log.read_text(), f"the start of {name}", children=(child,))
        found = re.search(r'"listen": \["127.0.0.1", (\d+)\]', log.read_text())
        assert found is not None, log.read_text()
        process = VramlineProcess(child, int(found[1]))
        with process.client:
            wait_until(lambda: process.client.get("/healthz").is_success, f"{name}'s HTTP", children=(child,))
            if leads:
                wait_until(process.leads, f"{name} to lead", children=(child,))
            yield process
    finally:
        child.stop()
