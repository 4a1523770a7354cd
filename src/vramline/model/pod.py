"""A pod as far as placement cares: what it asks of cards and host, and how far its life has got."""

import enum

import msgspec

from vramline.model.ask import Ask
from vramline.units import Mib

__all__ = [
    "Allocation",
    "GpuShare",
    "HamiPhase",
    "HostNeeds",
    "Pod",
    "PodPhase",
    "SelectorTerm",
    "Toleration",
]


class PodPhase(enum.StrEnum):
    """Where in its life a pod is."""

    PENDING = "Pending"
    """Not on any node yet."""
    BOUND = "Bound"
    """On a node; its containers have not started."""
    RUNNING = "Running"
    RELEASING = "Releasing"
    """Deletion was asked for; its memory is still held."""
    FINISHED = "Finished"
    """Succeeded or Failed: it holds nothing."""


class HamiPhase(enum.StrEnum):
    """How far HAMi's device plugin has got with a pod that has not started yet."""

    NONE = ""
    """It is not concerned, or the pod has started."""
    ALLOCATING = "allocating"
    """Its devices have yet to be handed out."""
    SUCCESS = "success"
    """They were handed out. Without a lock the plugin may still take it for the pod that it is asked for."""


class Toleration(msgspec.Struct, frozen=True):
    """A Kubernetes toleration; an empty key or effect matches all."""

    key: str
    operator: str
    value: str
    effect: str


class SelectorTerm(msgspec.Struct, frozen=True):
    """A requirement on a node label; operators In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class HostNeeds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a pod needs of its node besides GPUs."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    node_selector: dict[str, str] = {}
    affinity: tuple[tuple[SelectorTerm, ...], ...] = ()
    """Required node affinity on labels: one of the inner groups must match as a whole; empty: no wish."""
    affinity_names: tuple[tuple[str, ...], ...] = ()
    """For each group of `affinity`, the node names its matchFields allow; empty inside: any name."""
    tolerations: tuple[Toleration, ...] = ()


class GpuShare(msgspec.Struct, frozen=True):
    """MiB on one physical GPU."""

    uuid: str
    mib: Mib
    cores: int = 0


class Allocation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cards that an annotation on the pod names: Vramline's own, HAMi's, or a KAI group's."""

    gpus: tuple[GpuShare, ...] = ()
    groups: tuple[str, ...] = ()
    """KAI group names that must first be resolved to cards through their reservation pods."""
    origin: str = ""


class Pod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pod."""

    namespace: str
    name: str
    uid: str
    ask: Ask | None = None
    """None: it wants no GPU and is never touched."""
    host: HostNeeds = HostNeeds()
    phase: PodPhase = PodPhase.PENDING
    node: str | None = None
    allocation: Allocation | None = None
    created_at: float | None = None
    started_at: float | None = None
    """When its containers began to run; -inf: at some time before anyone looked; None: not yet."""
    ended_at: float | None = None
    """When the last container ended; None: not all have."""
    priority: int = 0
    may_preempt: bool = True
    """Whether less important pods may be sent away for it (preemptionPolicy is not Never)."""
    nominated: str | None = None
    """The node that it is nominated to: a hint that keeps no memory."""
    scheduler: str = ""
    """Who is to place it, by the name in its spec."""
    is_plain: bool = True
    """Whether nothing in it depends on where other pods or volumes are, or prefers some nodes to others."""
    told: str = ""
    """The reason for its waiting that stands in its status; empty: none does."""
    preempts_on: str | None = None
    """The node from which others were sent away for it: what it asks for is kept for it there."""
    holds_devices: bool = False
    """Whether kubelet hands it GPU devices: something it cannot merely claim in an annotation."""
    device_containers: tuple[bool, ...] = ()
    """For each container, init containers first, whether kubelet hands devices to it."""
    hami_phase: HamiPhase = HamiPhase.NONE
    reserves_group: tuple[str, str] | None = None
    """A reservation pod of KAI: (group, UUID of the card it holds). It claims no memory itself."""
    advances: tuple[str, ...] = ()
    """Seals of the reservations whose tokens it shows: it takes over one of them when it is bound."""
    notes: tuple[str, ...] = ()
    """What the manifest says that Vramline does not act on, one sentence each."""

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"
