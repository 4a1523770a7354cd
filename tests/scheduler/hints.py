"""Nodes, pods that wait, and an API server that takes hints for them."""

import asyncio
from typing import Any

import msgspec

from kubernetes_builders import node_object, pod_object, report
from vramline.model.pod import Pod
from vramline.model.rules import Rules
from vramline.scheduler.live import LiveState
from vramline.scheduler.nominator import HintRules, Nominator
from vramline.scheduler.store import Conflict, Unclear
from vramline.telemetry.tallies import Tallies
from vramline.wire import keys
from vramline.wire.kubernetes import PodObject, PodStatus

__all__ = ["CARD_MIB", "HintingStore", "World"]

CARD_MIB = 32_600
_RULES = HintRules(nodes=3, waiting=4, head=2)


class HintingStore:
    """Takes hints as the API server does, under the condition of the pod's version."""

    def __init__(self) -> None:
        self.pods: dict[str, PodObject] = {}
        self.hints: list[tuple[str, str]] = []
        self.version = 100
        self.before: Any = lambda _uid: None
        """Called when a hint is on its way."""
        self.gate: asyncio.Event | None = None
        """Where set, answers wait for it."""
        self.asked = 0
        self.takes = 10_000
        """After so many, the API server is overloaded."""

    async def hint_node(self, pod: Pod, version: str, node: str) -> PodObject | Conflict | Unclear:
        self.before(pod.uid)
        self.asked += 1
        await asyncio.sleep(0)
        if self.asked > self.takes:
            return Unclear("429: too many requests")
        if self.gate is not None:
            await self.gate.wait()
        stored = self.pods[pod.uid]
        if stored.metadata.resource_version != version:
            return Conflict("the pod has changed")
        self.hints.append((pod.uid, node))
        return self.touch(pod.uid, nominated_node_name=node)

    def touch(self, uid: str, **status: Any) -> PodObject:
        self.version += 1
        old = self.pods[uid]
        meta = msgspec.structs.replace(old.metadata, resource_version=str(self.version))
        new = msgspec.structs.replace(old.status or PodStatus(), **status)
        self.pods[uid] = msgspec.structs.replace(old, metadata=meta, status=new)
        return self.pods[uid]


class World:
    """Three nodes of one card each, and pods of 8,000 MiB, four of which fill a card."""

    def __init__(self, *, nodes: int = 3, rules: HintRules = _RULES, **node: Any) -> None:
        self.now = 0.0
        self.leads = True
        self.live = LiveState(Rules(), clock=lambda: 1_000.0)
        for number in range(nodes):
            name = f"n{number}"
            self.live.set_report(report({"uuid": f"GPU-{name}", "index": 0, "totalMiB": CARD_MIB}, node=name))
            self.live.set_node(node_object(name, **node))
        self.live.finish_listing_pods()
        self.store = HintingStore()
        self.tallies = Tallies()
        self.nominator = Nominator(
            self.live, self.store, lambda: self.leads, rules, clock=lambda: self.now, tallies=self.tallies
        )

    def add(self, number: int, *, mib: int | None = 8_000, **fields: Any) -> str:
        uid = f"uid-{number}"
        told = {} if mib is None else {keys.VRAM: str(mib)}
        spec = {"schedulerName": "vramline", **fields}
        meta = {"name": f"p{number}", "uid": uid, "resourceVersion": str(number + 1)}
        pod = pod_object(annotations=told, meta=meta, **spec)
        self.store.pods[uid] = pod
        self.live.set_pod(pod)
        return uid

    def step(self) -> list[tuple[str, str]]:
        """Look once and return the hints that were given."""
        before = len(self.store.hints)
        given = asyncio.run(self.nominator.step())
        assert given == len(self.store.hints) - before
        return self.store.hints[before:]

    def planned(self) -> list[str]:
        return [node for _, node in self.store.hints]
