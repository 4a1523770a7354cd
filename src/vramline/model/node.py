"""A machine of the cluster and the cards in it."""

import enum

import msgspec

from vramline.model.ask import RealtimeMode
from vramline.model.gpu import PhysicalGpu

__all__ = ["HostRoom", "InventorySource", "Node", "NodePool", "NodeProblem", "ProblemKind", "Taint"]


class InventorySource(enum.StrEnum):
    """Where the list of cards came from, best first."""

    REPORT = "GpuReport"
    HAMI = "HAMi register annotation"
    GFD = "GPU-feature-discovery labels"
    ANNOTATION = "vramline.io/gpus-physical annotation"
    NONE = "none"


class ProblemKind(enum.StrEnum):
    """Why no GPU of a node may be handed out although the node is there."""

    INVENTORY_CONFLICT = "InventoryConflict"
    UNKNOWN_INVENTORY = "UnknownInventory"
    FROZEN = "FrozenNode"


class NodeProblem(msgspec.Struct, frozen=True):
    """What is wrong with a node's GPUs, in one sentence with numbers."""

    kind: ProblemKind
    detail: str


class Taint(msgspec.Struct, frozen=True):
    """A Kubernetes taint."""

    key: str
    value: str
    effect: str


class HostRoom(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine offers besides GPUs; None: it does not say, so it does not limit."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None
    pods: int | None = None


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One machine, as far as placement cares."""

    name: str
    gpus: tuple[PhysicalGpu, ...] = ()
    problem: NodeProblem | None = None
    source: InventorySource = InventorySource.NONE
    advertised: int | None = None
    """Devices that kubelet advertises: replicas counted one by one. No figure of memory rests on it."""
    renamed: bool = False
    """Whether it advertises them under the name that NVIDIA's plugin has for time-sliced devices."""
    ready: bool = True
    cordoned: bool = False
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    host: HostRoom = HostRoom()
    platform: str = ""
    has_hami: bool = False
    """Whether HAMi's device plugin registers the cards, so that devices come from it."""
    hami_lock: str = ""
    """namespace/name of the pod that HAMi's node lock names, or the lock where it cannot be read; empty:
    there is no lock, or it names nobody."""
    realtime: RealtimeMode | None = None
    """The node's own mode of the real-time check; None: it has none."""
    realtime_enabled: bool = False
    """The node switches the check on, in whatever mode is in force otherwise."""

    @property
    def is_unified(self) -> bool:
        """Whether a GPU of this machine takes from the machine's own memory."""
        return any(gpu.unified for gpu in self.gpus)


class NodePool(msgspec.Struct, frozen=True):
    """The nodes that may be given GPU pods: those with this label and value."""

    key: str
    value: str

    def holds(self, node: Node) -> bool:
        """Whether a node belongs to the pool."""
        return node.labels.get(self.key) == self.value
