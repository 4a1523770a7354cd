"""An API server and kubelets in memory, and replicas that bind with reservations: for thousands of histories.

kubelet gives any free device, late; watches lag; answers get lost; processes are killed in the middle.
"""

import asyncio
import datetime as dt
import time
from random import Random
from typing import Any

import msgspec

from json_patch import apply_patch
from kubernetes_builders import container, node_object, pod_document, pod_object, report
from scheduler.memory_store import MemoryStore
from vramline.binder.binder import Binder
from vramline.binder.holds import Holds
from vramline.binder.keeper import Keeper, LostCard, Stranger
from vramline.binder.maker import Maker
from vramline.binder.parts import Parts
from vramline.binder.requests import Requests
from vramline.binder.store import Failed, StoredRequest, Taken
from vramline.model.rules import Rules
from vramline.scheduler.commit import Committer
from vramline.scheduler.live import LiveState
from vramline.scheduler.store import Unclear
from vramline.wire import keys
from vramline.wire.admission import AdmissionOptions, Admitted, plan_admission
from vramline.wire.bind_request_v1alpha1 import BindPhase, BindRequest
from vramline.wire.kubernetes import PodObject, PodSpec, PodStatus
from vramline.wire.ledger_v1alpha1 import GpuLedger
from vramline.wire.platform_profile import PlatformProfile
from vramline.wire.reservation_pod import Reservation, ReservationOptions

__all__ = [
    "CARD_MIB",
    "NODES",
    "OPTIONS",
    "Replica",
    "World",
    "device_pod",
    "has_ended",
    "shared_pod",
    "stranger",
    "whole_pod",
]

NODES = {"n1": 3, "n2": 1}
CARD_MIB = 24_100
OPTIONS = ReservationOptions(image="vramline:test")
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def shared_pod(number: int, mib: int = 8_000) -> PodObject:
    """A pod that shares a card."""
    meta = {"name": f"p{number}", "namespace": "ns", "uid": f"uid-{number}"}
    return pod_object(annotations={keys.KAI_MEMORY: str(mib)}, meta=meta)


def whole_pod(number: int, gpus: int = 1) -> PodObject:
    """A pod that wants whole cards, as the webhook leaves it."""
    meta = {"name": f"w{number}", "namespace": "ns", "uid": f"uid-w{number}"}
    pod = pod_document(container(gpu=gpus), meta=meta)
    plan = plan_admission(pod, operation="CREATE", options=AdmissionOptions(makes_reservations=True))
    assert isinstance(plan, Admitted)
    return msgspec.convert(apply_patch(pod, plan.patch), PodObject)


def device_pod(number: int, gpus: int = 1, **spec: Any) -> PodObject:
    """A pod that takes devices from kubelet: it did not pass the webhook."""
    meta = {"name": f"s{number}", "namespace": "ns", "uid": f"uid-s{number}"}
    return pod_object(container(gpu=gpus), meta=meta, **spec)


def stranger(number: int, node: str) -> PodObject:
    """A pod with a device that somebody else placed."""
    return device_pod(number, nodeName=node, schedulerName="other")


class BinderMemory:
    """The side of the binder's store. Reads are those of the commit protocol's."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.make_pod = world.make_pod
        self.end_pod = world.end_pod
        self.write_request = world.write_request
        self.read_request = world.read_request
        self.drop_request = world.drop_request

    async def read_pod(self, namespace: str, name: str) -> PodObject | Failed | None:
        read = await self._world.read_pod(namespace, name)
        return Failed(read.detail) if isinstance(read, Unclear) else read

    async def read_ledger(self, node: str) -> GpuLedger | Failed | None:
        read = await self._world.read_ledger(node)
        return Failed(read.detail) if isinstance(read, Unclear) else read


class World(MemoryStore):
    """The API server and the kubelets of all nodes."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.requests: dict[tuple[str, str], StoredRequest] = {}
        self.given: dict[str, str] = {}
        """Device of each pod, by UID."""
        self.ended: list[str] = []
        """Names of the pods that were deleted through the binder's store."""
        self._made = 0

    # ── the side of the BinderStore protocol ─────────────────────────────────────────────────────

    async def make_pod(self, namespace: str, manifest: dict[str, Any]) -> PodObject | Taken | Failed:
        await self._network()
        name = manifest["metadata"]["name"]
        if self.find(namespace, name) is not None:
            return Taken("exists")
        self._made += 1
        uid = f"uid-r{self._made}"
        pod = msgspec.convert(manifest, PodObject)
        made_at = NOW + dt.timedelta(seconds=self._made)
        meta = msgspec.structs.replace(pod.metadata, uid=uid, creation_timestamp=made_at)
        self._store(msgspec.structs.replace(pod, metadata=meta))
        stored = self.pods[uid]
        await self._network()
        return Failed("timed out") if self._loses_answer() else stored

    async def end_pod(self, namespace: str, reservation: Reservation, *, now: bool) -> Failed | None:
        await self._network()
        pod = self.pods.get(reservation.uid)
        if pod is not None:
            assert pod.metadata.namespace == namespace == OPTIONS.namespace
            self.ended.append(reservation.name)
            if now:
                self.delete_pod(reservation.uid)
            elif pod.metadata.deletion_timestamp is None:
                meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=NOW)
                self._store(msgspec.structs.replace(pod, metadata=meta))
        await self._network()
        return Failed("timed out") if self._loses_answer() else None

    async def write_request(
        self, request: BindRequest, version: int | None
    ) -> StoredRequest | Taken | Failed:
        await self._network()
        key = (request.namespace, request.name)
        stored = self.requests.get(key)
        if (stored.version if stored else None) != version:
            return Taken("somebody else wrote the request")
        if stored is not None:
            _check_change(stored.request, request)
        self.version += 1
        written = StoredRequest(request, self.version)
        self.requests[key] = written
        self._tell(lambda live: live.take_request(written))  # type: ignore[attr-defined]
        await self._network()
        return Failed("timed out") if self._loses_answer() else written

    async def read_request(self, namespace: str, name: str) -> StoredRequest | Failed | None:
        await self._network()
        return Failed("timed out") if self._loses_answer() else self.requests.get((namespace, name))

    async def drop_request(self, request: StoredRequest) -> Failed | None:
        await self._network()
        key = (request.request.namespace, request.request.name)
        self.requests.pop(key, None)
        self._tell(lambda live: live.drop_request(*key))  # type: ignore[attr-defined]
        return None

    def _loses_answer(self) -> bool:
        return self.random.random() < self.fault_rate

    # ── the side of the world ────────────────────────────────────────────────────────────────────

    def find(self, namespace: str, name: str) -> PodObject | None:
        """Return a pod by its name."""
        named = (
            p for p in self.pods.values() if (p.metadata.namespace, p.metadata.name) == (namespace, name)
        )
        return next(named, None)

    def delete_pod(self, uid: str) -> None:
        """The object goes, what it owned goes, and kubelet frees its device."""
        pod = self.pods[uid]
        super().delete_pod(uid)
        self.given.pop(uid, None)
        key = (pod.metadata.namespace or "", pod.metadata.name or "")
        if key in self.requests:
            del self.requests[key]
            self._tell(lambda live: live.drop_request(*key))  # type: ignore[attr-defined]

    def set_status(self, uid: str, **fields: Any) -> None:
        """kubelet says how a pod is."""
        pod = self.pods[uid]
        self._store(msgspec.structs.replace(pod, status=PodStatus(**fields)))

    def reservations(self) -> list[PodObject]:
        """Return all reservation pods."""
        return [pod for pod in self.pods.values() if pod.metadata.namespace == OPTIONS.namespace]

    def kubelets_act(self, most: int = 100) -> None:
        """Let kubelets end, start or reject pods, whichever comes first."""
        uids = list(self.pods)
        self.random.shuffle(uids)
        for uid in uids[:most]:
            pod = self.pods[uid]
            if pod.metadata.deletion_timestamp is not None:
                self.delete_pod(uid)
            elif pod.spec is not None and pod.spec.node_name and uid not in self.given:
                self._admit(uid, pod)

    def devices(self, node: str) -> set[str]:
        """Return the device ids of a node."""
        return {f"GPU-{node}-{index}" for index in range(NODES[node])}

    def free_devices(self, node: str) -> list[str]:
        """Return what its kubelet can still give."""
        return sorted(self.devices(node) - set(self.given.values()))

    def reboot(self, node: str) -> None:
        """kubelet forgets what it gave, and rejects whoever had a device."""
        for uid, pod in list(self.pods.items()):
            here = pod.spec is not None and pod.spec.node_name == node and not has_ended(pod)
            if here and self.given.pop(uid, ""):
                self.set_status(uid, phase="Failed", reason="UnexpectedAdmissionError")

    def _admit(self, uid: str, pod: PodObject) -> None:
        if has_ended(pod) or not _wants_device(pod):
            return
        free = self.free_devices((pod.spec or PodSpec()).node_name or "")
        if not free:
            self.set_status(uid, phase="Failed", reason="UnexpectedAdmissionError")
            return
        self.given[uid] = self.random.choice(free)
        if pod.metadata.namespace == OPTIONS.namespace:
            told = {**(pod.metadata.annotations or {}), keys.RESERVED_GPU: self.given[uid]}
            told[keys.KAI_RESERVED_UUID] = self.given[uid]
            self._store(pod, annotations=told)
        self.set_status(uid, phase="Running")


class Ears:
    """What a replica hears: pods for its books and for its reservations, requests for its memory."""

    def __init__(self, live: LiveState, holds: Holds, requests: Requests) -> None:
        self.live = live
        self.holds = holds
        self.requests = requests
        self.set_ledger = live.set_ledger
        self.finish_listing_pods = live.finish_listing_pods
        self.take_request = requests.take
        self.drop_request = requests.drop

    def set_pod(self, pod: PodObject) -> None:
        """A pod was created or changed."""
        self.live.set_pod(pod)
        self.holds.take(pod)

    def drop_pod(self, uid: str) -> None:
        """A pod is gone."""
        self.live.drop_pod(uid)
        self.holds.drop(uid)


class Replica:
    """One scheduler process with its binder."""

    def __init__(self, world: World, *, epoch: int = 1, within_s: float = 60.0) -> None:
        self.world = world
        self.now = 1_000.0
        self.epoch: int | None = epoch
        self.told: list[LostCard | Stranger] = []
        self.live = LiveState(Rules(), clock=lambda: self.now, release_grace_s=60.0)
        for name, count in NODES.items():
            cards = [
                {"uuid": f"GPU-{name}-{index}", "index": index, "totalMiB": CARD_MIB}
                for index in range(count)
            ]
            self.live.set_report(report(*cards, node=name))
            self.live.set_node(node_object(name, allocatable={"nvidia.com/gpu": str(count)}))
        store = BinderMemory(world)
        holds, requests = Holds(OPTIONS.namespace), Requests(store)
        for stored in world.requests.values():
            requests.take(stored)
        maker = Maker(store, holds, OPTIONS, lambda _: PlatformProfile())
        self.seconds = 0.0
        """How far the binder's clock is ahead."""
        self.parts = Parts(self.live, holds, maker, requests, store, self.clock)
        self.ears = Ears(self.live, holds, requests)
        world.watch(self.ears)  # type: ignore[arg-type]
        self.binder = Binder(self.parts, within_s=within_s)
        self.committer = Committer(self.live, world, lambda: self.epoch, holder=self.binder, apart_s=0.0)
        self.keeper = Keeper(
            self.parts, epoch=lambda: self.epoch, bind=self.committer.bind, tell=self.told.append
        )

    def clock(self) -> float:
        """The binder's seconds."""
        return time.monotonic() + self.seconds

    def hear(self, most: int | None = None) -> None:
        """Let the watch catch up."""
        self.world.deliver(self.ears, most)  # type: ignore[arg-type]

    async def bind(self, uid: str, node: str) -> str:
        """Bind a pod while kubelets act and the watch delivers; return what speaks against it."""
        task = asyncio.create_task(self.committer.bind(uid, node))
        while not task.done():
            await asyncio.sleep(0)
            self.world.kubelets_act()
            self.hear()
        return task.result().refused

    async def keep(self, rounds: int = 6) -> None:
        """Let the keeper do its rounds while kubelets act."""
        for _ in range(rounds):
            self.hear()
            await self.keeper.round()
            for _ in range(3):
                await asyncio.sleep(0)
            self.world.kubelets_act()
            self.hear()


def has_ended(pod: PodObject) -> bool:
    """Whether kubelet runs it no more, or never did."""
    return pod.status is not None and pod.status.phase in ("Failed", "Succeeded")


def _wants_device(pod: PodObject) -> bool:
    containers = (pod.spec or PodSpec()).containers or ()
    return any(each.resources and keys.GPU_COUNT in (each.resources.limits or {}) for each in containers)


def _check_change(old: BindRequest, new: BindRequest) -> None:
    """The rules of the definition of BindRequest: the API server refuses what breaks them."""
    assert old.pod_uid == new.pod_uid
    assert new.attempts >= old.attempts
    if new.attempts == old.attempts:
        assert (old.node, old.gpus) == (new.node, new.gpus), "the intent of an attempt was changed"
        assert (old.phase, new.phase) != (BindPhase.FAILED, BindPhase.PENDING)
    assert old.phase is not BindPhase.SUCCEEDED or old == new
