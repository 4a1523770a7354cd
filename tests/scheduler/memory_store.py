"""The API server's rules for ledgers and bindings, in memory, with faults and lagging watches on demand.

Not a proof of anything about Kubernetes (the end-to-end tests are); it lets a property test try thousands
of interleavings that a real server would hardly ever show.
"""

import asyncio
from collections.abc import Callable
from random import Random

import msgspec

from vramline.scheduler.live import LiveState
from vramline.scheduler.store import Binding, Conflict, Done, NodeLock, Unclear, Written
from vramline.wire.kubernetes import ObjectMeta, PodObject, PodSpec
from vramline.wire.ledger_v1alpha1 import GpuLedger

__all__ = ["Crash", "MemoryStore"]


class Crash(BaseException):
    """The process is killed here."""


class MemoryStore:
    """Ledgers and pods under compare-and-swap; every change is delivered to each watcher in order, late."""

    def __init__(self, random: Random, *, fault_rate: float = 0.0, crash_rate: float = 0.0) -> None:
        self.random = random
        self.fault_rate = fault_rate
        self.crash_rate = crash_rate
        self.version = 1
        self.ledgers: dict[str, GpuLedger] = {}
        self.pods: dict[str, PodObject] = {}
        self.locks: dict[str, NodeLock] = {}
        self.writes = 0
        self.on_their_way: list[Binding] = []
        self.bound_to: dict[str, str] = {}
        """Node of every pod that was ever bound, deleted ones too."""
        self._feeds: dict[LiveState, list[Callable[[], None]]] = {}

    # ── the side of the Store protocol ───────────────────────────────────────────────────────────

    async def write_ledger(self, ledger: GpuLedger) -> Written | Conflict | Unclear:
        await self._network()
        stored = self.ledgers.get(ledger.node)
        if (stored.resource_version if stored else "") != ledger.resource_version:
            return Conflict("somebody else wrote the ledger")
        self.writes += 1
        self.version += 1
        written = msgspec.structs.replace(ledger, resource_version=str(self.version))
        self.ledgers[ledger.node] = written
        self._tell(lambda live: live.set_ledger(written))
        await self._network()
        return Unclear("timed out") if self.random.random() < self.fault_rate else Written(written)

    async def read_ledger(self, node: str) -> GpuLedger | Unclear | None:
        await self._network()
        return Unclear("timed out") if self.random.random() < self.fault_rate else self.ledgers.get(node)

    async def bind(self, binding: Binding) -> Done | Conflict | Unclear:
        await self._network()
        if self.random.random() < self.fault_rate:
            self.on_their_way.append(binding)  # nobody waits for the answer, and it lands when it lands
            return Unclear("timed out")
        answer = self.land(binding)
        await self._network()
        return Unclear("timed out") if self.random.random() < self.fault_rate else answer

    def land(self, binding: Binding) -> Done | Conflict:
        """Carry out a binding as the API server does."""
        pod = self.pods.get(binding.uid)
        if pod is None or pod.metadata.resource_version != binding.resource_version:
            return Conflict("the pod is gone or changed")
        if pod.spec is not None and pod.spec.node_name:
            return Conflict("the pod is bound already")
        self.writes += 1
        self.bound_to[binding.uid] = binding.node
        annotations = {**(pod.metadata.annotations or {}), **binding.annotations}
        self._store(pod, annotations=annotations, node=binding.node)
        return Done()

    async def read_pod(self, namespace: str, name: str) -> PodObject | Unclear | None:
        await self._network()
        if self.random.random() < self.fault_rate:
            return Unclear("timed out")
        return next(
            (p for p in self.pods.values() if (p.metadata.namespace, p.metadata.name) == (namespace, name)),
            None,
        )

    async def read_lock(self, node: str) -> NodeLock | Unclear | None:
        await self._network()
        if self.random.random() < self.fault_rate:
            return Unclear("timed out")
        return self.locks.get(node, NodeLock("", "1"))

    async def write_lock(self, node: str, version: str, text: str | None) -> Done | Conflict | Unclear:
        await self._network()
        if self.locks.get(node, NodeLock("", "1")).version != version:
            return Conflict("somebody else wrote the node")
        self.set_lock(node, text or "")
        await self._network()
        return Unclear("timed out") if self.random.random() < self.fault_rate else Done()

    async def fence_pod(self, namespace: str, name: str, uid: str) -> PodObject | Unclear | None:
        await self._network()
        pod = self.pods.get(uid)
        if pod is None or (pod.metadata.namespace, pod.metadata.name) != (namespace, name):
            return None
        self.touch_pod(uid)
        stored = self.pods[uid]
        await self._network()
        return Unclear("timed out") if self.random.random() < self.fault_rate else stored

    # ── the side of the world ────────────────────────────────────────────────────────────────────

    def set_lock(self, node: str, text: str) -> None:
        """HAMi, or its device plugin, writes its lock on a node."""
        self.version += 1
        self.locks[node] = NodeLock(text, str(self.version))

    def create_pod(self, pod: PodObject) -> None:
        self._store(pod)

    def touch_pod(self, uid: str) -> None:
        """Somebody patches the pod's status: a new version, nothing else."""
        self._store(self.pods[uid])

    def delete_pod(self, uid: str) -> None:
        del self.pods[uid]
        self._tell(lambda live: live.drop_pod(uid))

    def watch(self, live: LiveState) -> None:
        """List everything into `live` and deliver later changes when `deliver` is called."""
        for ledger in self.ledgers.values():
            live.set_ledger(ledger)
        for pod in self.pods.values():
            live.set_pod(pod)
        live.finish_listing_pods()
        self._feeds[live] = []

    def deliver(self, live: LiveState, most: int | None = None) -> None:
        """Hand over the next changes, all of them where `most` is None."""
        feed = self._feeds[live]
        for change in feed[:most]:
            change()
        del feed[: len(feed) if most is None else most]

    def _store(self, pod: PodObject, **changes: object) -> None:
        self.version += 1
        meta, spec = pod.metadata, pod.spec or PodSpec()
        metadata: ObjectMeta = msgspec.structs.replace(
            meta,
            resource_version=str(self.version),
            annotations=changes.get("annotations", meta.annotations),
        )
        stored = msgspec.structs.replace(
            pod,
            metadata=metadata,
            spec=msgspec.structs.replace(spec, node_name=changes.get("node", spec.node_name)),
        )
        self.pods[metadata.uid or ""] = stored
        self._tell(lambda live: live.set_pod(stored))

    def _tell(self, change: Callable[[LiveState], None]) -> None:
        for live, feed in self._feeds.items():
            feed.append(lambda live=live: change(live))  # type: ignore[misc]

    async def _network(self) -> None:
        if self.random.random() < self.crash_rate:
            raise Crash
        for _ in range(self.random.randrange(3)):
            await asyncio.sleep(0)
