"""Small embedded clusters behind the scheduler's HTTP, and calls to it in process."""

import asyncio
from typing import Any

import httpx
import msgspec

import builders
from vramline.explain.chronicle import Chronicle
from vramline.explain.history import History
from vramline.model.ask import Ask
from vramline.model.node import Node
from vramline.model.observation import Observation
from vramline.model.pod import Pod
from vramline.model.rules import Rules
from vramline.scheduler.app import build_app
from vramline.simulate.cluster import EmbeddedCluster

__all__ = ["NOW", "Door", "cluster_of", "pending", "pod_body"]

NOW = 1_000.0


def cluster_of(*nodes: Node, rules: Rules | None = None, **observations: Observation) -> EmbeddedCluster:
    """An embedded cluster whose clock stands still; cards named by keyword were looked at."""
    cluster = EmbeddedCluster(rules or Rules(), clock=lambda: NOW)
    for node in nodes:
        cluster.set_node(node)
    for uuid, seen in observations.items():
        cluster.observe(uuid.replace("_", "-"), seen)
    return cluster


def pending(cluster: EmbeddedCluster, ask: Ask | None = None, *, name: str = "new", **fields: Any) -> Pod:
    """Add a pod that waits."""
    key = f"ns/{name}"
    if ask is not None:
        ask = msgspec.structs.replace(ask, pod=key, pod_uid=builders.uid_of(key))
    pod = Pod(namespace="ns", name=name, uid=builders.uid_of(key), ask=ask, created_at=NOW - 5, **fields)
    cluster.add_pod(pod)
    return pod


def pod_body(mib: int | str | None = 8_000, **annotations: str) -> dict[str, Any]:
    """A v1 Pod ns/new that asks for so many MiB; None: for no GPU."""
    told = {} if mib is None else {"vramline.io/vram": str(mib)}
    told |= {key.replace("__", "/").replace("_", "-"): value for key, value in annotations.items()}
    return {
        "metadata": {"name": "new", "namespace": "ns", "uid": builders.uid_of("ns/new"), "annotations": told},
        "spec": {"containers": [{"name": "main"}]},
    }


class Door:
    """The HTTP face of a cluster, without a network."""

    def __init__(
        self, cluster: EmbeddedCluster, history: History | None = None, chronicle: Chronicle | None = None
    ) -> None:
        self.cluster = cluster
        self.history = history or History()
        self._app = build_app(cluster, self.history, chronicle=chronicle)

    def get(self, path: str) -> httpx.Response:
        """Ask for something."""
        return self.send("GET", path)

    def post(self, path: str, document: object) -> httpx.Response:
        """Send a document as JSON; bytes are sent as they are."""
        content = document if isinstance(document, bytes) else msgspec.json.encode(document)
        return self.send("POST", path, content)

    def send(self, method: str, path: str, content: bytes | None = None) -> httpx.Response:
        """Send one request; an exception inside the application is an exception here."""

        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.request(method, path, content=content)

        return asyncio.run(call())
