"""The API server's rules for nominations and evictions, in memory, and a live state that sees all at once."""

import asyncio
from typing import Any

import msgspec

from kubernetes_builders import node_object, pod_object, report
from vramline.kube.events import Notice
from vramline.model.pod import Pod
from vramline.model.rules import Rules
from vramline.scheduler.live import LiveState
from vramline.scheduler.preempter import Preempter
from vramline.scheduler.store import Conflict, Done, Refused, Unclear
from vramline.wire import keys
from vramline.wire.kubernetes import PodObject

__all__ = ["TOTAL", "Stage"]

TOTAL = 10_100
"""MiB of every card; 10,000 can be promised."""
_GONE = "2026-01-01T00:00:00Z"


class Stage:
    """Nodes with one card each, pods on them, and a preempter that leads."""

    def __init__(self, *nodes: str) -> None:
        self.now = 100.0
        self.leads = True
        self.told: list[Notice] = []
        self.evicted: list[str] = []
        self.protected: set[str] = set()
        self.answers_are_lost = False
        self._pods: dict[str, dict[str, Any]] = {}
        self._version = 0
        self._nodes = nodes
        self.start()

    def start(self) -> None:
        """Start anew, with nothing but what is stored."""
        self.live = LiveState(Rules(), clock=lambda: 1_000.0)
        for node in self._nodes:
            self.live.set_report(report({"uuid": f"GPU-{node}", "index": 0, "totalMiB": TOTAL}, node=node))
            self.live.set_node(node_object(node))
        for fields in self._pods.values():
            self.live.set_pod(pod_object(**fields))
        self.preempter = Preempter(
            self.live, self, lambda: self.leads, self.told.append, clock=lambda: self.now
        )

    # ── the world ────────────────────────────────────────────────────────────────────────────────

    def run(self, name: str, mib: int, priority: int, node: str = "n1") -> None:
        """Add a pod that runs on a node's card."""
        seal = {"node": node, "gpus": [{"uuid": f"GPU-{node}", "mib": mib}], "ledgerVersion": 1}
        told = {keys.VRAM: str(mib), keys.ALLOCATION: msgspec.json.encode(seal).decode()}
        spec = {"nodeName": node, "priority": priority}
        self._store(name, annotations=told, status={"phase": "Running"}, **spec)

    def wait(self, name: str, mib: int, priority: int, **spec: Any) -> str:
        """Add a pod that no node took, and return its UID."""
        self._store(name, annotations={keys.VRAM: str(mib)}, priority=priority, **spec)
        return f"uid-{name}"

    def end(self, name: str) -> None:
        """Let a pod's object go."""
        del self._pods[name]
        self.live.drop_pod(f"uid-{name}")

    def touch(self, name: str) -> None:
        """Somebody writes to a pod."""
        self._store(name)

    def refuse(self, name: str, *nodes: str) -> None:
        """Let kube-scheduler hear that no node fits, and give it time to preempt on its own."""
        self.preempter.refused(f"uid-{name}", nodes)
        self.now += 2.0

    def step(self) -> list[str]:
        """Let the preempter do what is due; return who has been evicted until now."""
        asyncio.run(self.preempter.step())
        return self.evicted

    def pod(self, name: str) -> Pod:
        return self.live.pods[f"uid-{name}"]

    # ── the side of the store ────────────────────────────────────────────────────────────────────

    async def nominate_pod(
        self, pod: Pod, version: str, node: str | None, why: str
    ) -> PodObject | Conflict | Unclear:
        if self.answers_are_lost:
            return Unclear("timed out")
        stored = self._pods.get(pod.name)
        if stored is None or stored["meta"]["resourceVersion"] != version:
            return Conflict("the pod changed")
        mark = {
            "type": keys.CONDITION_PREEMPTOR,
            "status": "True" if node else "False",
            "reason": node,
            "message": why,
        }
        status = {**(stored.get("status") or {}), "nominatedNodeName": node, "conditions": [mark]}
        return self._store(pod.name, status=status)

    async def evict_pod(self, pod: Pod, *, dry_run: bool = False) -> Done | Conflict | Refused | Unclear:
        if pod.name not in self._pods:
            return Conflict("gone")
        if pod.name in self.protected:
            return Refused("a budget")
        if not dry_run:
            self.evicted.append(pod.name)
            meta = {**self._pods[pod.name]["meta"], "deletionTimestamp": _GONE}
            self._pods[pod.name] = {**self._pods[pod.name], "meta": meta}
        return Done()

    async def read_pod(self, namespace: str, name: str) -> PodObject | Unclear | None:
        del namespace
        return None if name not in self._pods else pod_object(**self._pods[name])

    def _store(self, name: str, **fields: Any) -> PodObject:
        self._version += 1
        known = self._pods.get(name, {"meta": {"name": name, "uid": f"uid-{name}"}})
        meta = {**known["meta"], "resourceVersion": str(self._version)}
        self._pods[name] = {**known, **fields, "meta": meta}
        document = pod_object(**self._pods[name])
        self.live.set_pod(document)
        return document
