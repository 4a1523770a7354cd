"""From what a user wants served to the InferenceService that says so: size, place, and memory that is held.

Deciding and holding is one step where a scheduler is asked to reserve; without one, the choice is what a
cluster looked like a moment ago.
"""

import contextlib
import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from vramline.errors import RequestError
from vramline.inference.caches import Engine
from vramline.inference.card_kinds import CardKind, kinds_of
from vramline.inference.discovery import find_best_node_for_deployment, get_node_gpu_summaries
from vramline.inference.estimate import Model, Plan
from vramline.inference.gpu_cluster import GpuCluster
from vramline.inference.reservation_client import Held, NoRoomError, ReservationClient
from vramline.inference.selection_text import describe_reservation, describe_selection
from vramline.inference.sizing import Sizing, parallel_flags, size_by_memory, size_by_model
from vramline.model.ask import Ask, Constraints, MibSize, UnsizedSize
from vramline.model.pod import HostNeeds, Pod
from vramline.units import Mib
from vramline.wire import keys
from vramline.wire.manifests import write_pod
from vramline.wire.ome_runtime import ServingRuntime
from vramline.wire.ome_v1beta1 import (
    ChosenNode,
    DeploymentMode,
    ServiceWish,
    model_ready_label,
    write_inference_service,
)

__all__ = ["Deployer", "Placement", "Prepared", "ServiceOrder"]

_MODEL_IS_THERE = "Ready"


class Placement(enum.StrEnum):
    """Who decides where a service goes, and how firmly."""

    SOFT = "soft"
    """The scheduler prefers the best node."""
    PIN = "pin"
    """The service may go nowhere else."""
    SCHEDULER = "scheduler"
    """No node is named: Vramline's scheduler places the pod by the memory it asks for."""


class ServiceOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be served, and how."""

    name: str
    namespace: str
    model: str
    runtime: str
    """Empty: OME chooses one, and nothing is known of it."""
    gpus: int | None = None
    """Of all its pods together; None: as many as the runtime has, else one."""
    placement: Placement | None = Placement.SOFT
    """None: nothing is said about it."""
    mode: DeploymentMode | None = None
    """None: as the runtime is made."""
    workers: int = 0
    """MultiNode: pods besides the leader; 0: as the runtime has it."""
    gpu_memory: int | None = None
    """MiB on each GPU."""
    served: Model | None = None
    """Instead: the model, whose need is estimated."""
    plan: Plan = Plan()
    labels: dict[str, str] = {}
    storage: dict[str, str] = {}
    copies: int = 1
    """How many of it run at least; each is one pod, or a leader with its workers."""
    written: dict[str, Any] = {}
    """The service as somebody wrote it, over which this is laid."""
    ttl_s: int = 600
    """How long memory is held for pods that do not come."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A service that can be made, and the memory that is held for it."""

    wish: ServiceWish
    held: tuple[Held, ...] = ()
    sizing: Sizing | None = None


@dataclass(slots=True)
class Deployer:
    """Prepares services for one cluster."""

    read_cluster: Callable[[], GpuCluster]
    runtime: ServingRuntime | None
    desk: ReservationClient | None
    """Who holds memory; None: nobody, and what was chosen may be taken before the pod comes."""
    say: Callable[[str], object]

    def prepare(self, order: ServiceOrder) -> Prepared:
        """Size and place a service; raises `NoRoomError` where nothing can be held for it."""
        wish = self._describe(order)
        write_inference_service(_as_if_placed(wish, order.placement))  # refused before anything is held
        if order.placement is None:
            return Prepared(wish=wish)
        cluster = self.read_cluster()
        sizings = self._sizes(order, wish, list(kinds_of(cluster.fleet)))
        if order.placement is Placement.SCHEDULER and not sizings:
            raise _no_size(order)
        host = self._host_needs(cluster, wish)
        if self.desk is None:
            return self._choose(order, wish, cluster, sizings, host)
        return self._reserve(order, wish, cluster, sizings, host)

    def release(self, prepared: Prepared) -> None:
        """Give back what is held for a service that is not made after all."""
        for held in prepared.held:
            if self.desk is not None:
                self.desk.end(held)

    # ── what it is ───────────────────────────────────────────────────────────────────────────────

    def _describe(self, order: ServiceOrder) -> ServiceWish:
        runtime = self.runtime
        several = runtime is not None and runtime.workers > 0
        mode = order.mode or (DeploymentMode.MULTI_NODE if several else DeploymentMode.RAW)
        workers = order.workers
        if mode is DeploymentMode.MULTI_NODE and not workers and runtime is not None:
            workers = runtime.workers
        per_pod = max(runtime.pod.gpus, 1) if runtime is not None else 1
        wish = ServiceWish(
            name=order.name,
            namespace=order.namespace,
            model=order.model,
            runtime=order.runtime,
            gpus=order.gpus or per_pod * (workers + 1),
            mode=mode,
            workers=workers,
            labels=order.labels,
            storage=order.storage,
        )
        if order.gpus is None or runtime is None or order.gpus == per_pod * (workers + 1):
            return wish
        return self._with_flags(wish, parallel_flags(runtime.pod.engine, order.gpus))

    def _sizes(self, order: ServiceOrder, wish: ServiceWish, kinds: list[CardKind]) -> list[Sizing]:
        engine = self.runtime.pod.engine if self.runtime is not None else ""
        if order.served is not None:
            plan = order.plan if not engine else msgspec.structs.replace(order.plan, engine=Engine(engine))
            tp = max(wish.gpus // plan.pp, 1)
            return size_by_model(order.served, msgspec.structs.replace(plan, tp=tp), kinds)
        if order.gpu_memory is not None:
            return size_by_memory(order.gpu_memory, engine, kinds)
        return []

    def _host_needs(self, cluster: GpuCluster, wish: ServiceWish) -> HostNeeds:
        """Return what its pod needs of a node besides GPUs; the model's files, where OME marks any node."""
        host = self.runtime.pod.host if self.runtime is not None else HostNeeds()
        ready = model_ready_label(wish.model)
        if not any(ready in node.labels for node in cluster.fleet.nodes):
            return host
        selector = {**host.node_selector, ready: _MODEL_IS_THERE}
        return msgspec.structs.replace(host, node_selector=selector)

    # ── where it goes ────────────────────────────────────────────────────────────────────────────

    def _choose(
        self,
        order: ServiceOrder,
        wish: ServiceWish,
        cluster: GpuCluster,
        sizings: list[Sizing],
        host: HostNeeds,
    ) -> Prepared:
        """Name the best node of this moment."""
        per_pod = _gpus_per_pod(wish)
        by_model = order.served is not None and not wish.workers
        name = find_best_node_for_deployment(
            per_pod,
            gpu_memory=sizings[0].mib if sizings and not by_model else None,
            model=order.served if by_model else None,
            plan=order.plan if by_model else None,
            host=host,
            cluster=cluster,
        )
        sizing = _sizing_on(cluster, name, sizings)
        if order.placement is Placement.SCHEDULER:
            return self._finish(order, wish, cluster, sizing, ())
        self._tell_choice(per_pod, cluster, name)
        return self._finish(order, wish, cluster, sizing, (), node=name)

    def _reserve(
        self,
        order: ServiceOrder,
        wish: ServiceWish,
        cluster: GpuCluster,
        sizings: list[Sizing],
        host: HostNeeds,
    ) -> Prepared:
        """Have memory held for every pod, on the first kind of card where there is room for all."""
        refused = NoRoomError("there is no GPU in this cluster")
        ways: list[Sizing | None] = [*sizings] or [None]
        for sizing in ways:
            try:
                held = self._hold_all(order, wish, host, sizing, cluster)
            except NoRoomError as error:
                refused = error
                continue
            per_pod = _gpus_per_pod(wish)
            if order.placement is not Placement.SCHEDULER:
                self._tell_choice(per_pod, cluster, held[0].node)
            for line in describe_reservation(held):
                self.say(line)
            return self._finish(order, wish, cluster, sizing, held, node=held[0].node)
        raise refused

    def _hold_all(
        self,
        order: ServiceOrder,
        wish: ServiceWish,
        host: HostNeeds,
        sizing: Sizing | None,
        cluster: GpuCluster,
    ) -> tuple[Held, ...]:
        """Hold memory for all pods of a service, or for none."""
        size = UnsizedSize() if sizing is None else MibSize(Mib(sizing.mib))
        models = _constraint(cluster, sizing)
        ask = Ask(
            pod=wish.name,
            pod_uid="",
            gpus=_gpus_per_pod(wish),
            size=size,
            constraints=Constraints(use_models=models),
        )
        pod = Pod(namespace=wish.namespace, name=wish.name, uid="", ask=ask, host=host)
        manifest, held = write_pod(pod, (), now=0.0), list[Held]()
        if self.desk is None:
            return ()
        with contextlib.ExitStack() as undo:
            for _ in range(order.copies * (wish.workers + 1)):
                one = self.desk.reserve(
                    namespace=wish.namespace, name=wish.name, pod=manifest, ttl_s=order.ttl_s
                )
                undo.callback(self.desk.end, one)
                held.append(one)
            undo.pop_all()
        return tuple(held)

    def _finish(
        self,
        order: ServiceOrder,
        wish: ServiceWish,
        cluster: GpuCluster,
        sizing: Sizing | None,
        held: tuple[Held, ...],
        *,
        node: str | None = None,
    ) -> Prepared:
        """Write down what was decided."""
        annotations: dict[str, str] = {}
        if held:
            annotations[keys.RESERVATION] = ",".join(each.token for each in held)
        if order.placement is Placement.SCHEDULER and sizing is not None:
            annotations |= {keys.VRAM: f"{sizing.mib}Mi", keys.GPUS: str(_gpus_per_pod(wish))}
            if models := _constraint(cluster, sizing):
                annotations[keys.HAMI_USE_TYPE] = models[0]
            wish = msgspec.structs.replace(wish, scheduler="vramline")
        elif node is not None:
            wish = msgspec.structs.replace(wish, node=_chosen(cluster, node, order.placement))
        wish = msgspec.structs.replace(wish, pod_annotations=annotations)
        if sizing is not None:
            wish = self._with_flags(wish, sizing.flags)
        return Prepared(wish=wish, held=held, sizing=sizing)

    def _with_flags(self, wish: ServiceWish, flags: tuple[str, ...]) -> ServiceWish:
        """Append flags to the runtime's arguments: of a flag given twice, engines take the last."""
        runtime = self.runtime
        if runtime is None or not runtime.pod.takes_flags:
            if flags:
                self.say(f"The engine is not told, as its runtime is not understood: {' '.join(flags)}")
            return wish
        before, workers = wish.args or runtime.pod.args, wish.worker_args
        if runtime.worker is not None:
            workers = (*(workers or runtime.worker.args), *flags)
        return msgspec.structs.replace(wish, args=(*before, *flags), worker_args=workers)

    def _tell_choice(self, required: int, cluster: GpuCluster, name: str | None) -> None:
        summary = None if name is None else get_node_gpu_summaries(cluster=cluster).get(name)
        for line in describe_selection(required, summary):
            self.say(line)


def _as_if_placed(wish: ServiceWish, placement: Placement | None) -> ServiceWish:
    """Return a service with some placement of this kind, to see whether OME could carry it out."""
    if placement is Placement.SCHEDULER:
        return msgspec.structs.replace(wish, scheduler="vramline")
    pinned = placement is Placement.PIN
    node = None if placement is None else ChosenNode("node", "node", pinned=pinned)
    return msgspec.structs.replace(wish, node=node)


def _gpus_per_pod(wish: ServiceWish) -> int:
    return max(wish.gpus // (wish.workers + 1), 1)


def _constraint(cluster: GpuCluster, sizing: Sizing | None) -> tuple[str, ...]:
    """Return the model of card for which the service was sized, where there are others too."""
    if sizing is None or len(kinds_of(cluster.fleet)) < 2 or not sizing.kind.model:
        return ()
    return (sizing.kind.model.lower(),)


def _chosen(cluster: GpuCluster, name: str, placement: Placement | None) -> ChosenNode:
    node = cluster.fleet.node(name)
    hostname = "" if node is None else node.labels.get(keys.HOSTNAME, "")
    return ChosenNode(name, hostname, pinned=placement is Placement.PIN)


def _sizing_on(cluster: GpuCluster, name: str | None, sizings: list[Sizing]) -> Sizing | None:
    """Return the size for the cards of a node; without a node, that for the smallest cards."""
    node = None if name is None else cluster.fleet.node(name)
    kinds = () if node is None else {CardKind(gpu.total, gpu.model) for gpu in node.gpus}
    return next((each for each in sizings if each.kind in kinds), sizings[0] if sizings else None)


def _no_size(order: ServiceOrder) -> RequestError:
    return RequestError(
        subject=f"InferenceService {order.name}",
        field="gpu_memory",
        problem="is missing: Vramline places pods by the memory they ask for",
        accepted='MiB on each GPU, or "20Gi"; or the model itself, whose need is estimated',
    )
