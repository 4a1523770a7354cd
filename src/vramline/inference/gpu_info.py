"""One GPU and one node: the fields of the autotuner's `gpu_discovery` in their order, extras last."""

from dataclasses import dataclass, field

__all__ = ["KNOWN_BUSY", "KNOWN_FREE", "UNKNOWN", "GPUInfo", "NodeGPUSummary"]

KNOWN_FREE, KNOWN_BUSY, UNKNOWN = "known-free", "known-busy", "unknown"


@dataclass
class GPUInfo:
    """One physical GPU. MiB, though the names say MB; None is what nobody could tell."""

    node_name: str
    gpu_index: int
    gpu_name: str
    memory_total_mb: int
    memory_used_mb: int | None
    memory_free_mb: int | None
    memory_usage_percent: float | None
    utilization_percent: int | None
    temperature_c: int | None
    is_allocatable: bool
    """Whether a new pod could have all of it: node and card are in service, and nobody holds a part."""
    has_metrics: bool
    """Whether the card was seen lately and told its memory."""
    uuid: str = ""
    mig: bool = False
    claimed_mb: int = 0
    releasing_mb: int = 0
    """Part of what is claimed."""
    promisable_mb: int = 0
    """What the scheduler would promise: usable − margin − held − unmanaged."""
    source: str = ""
    """Who looked at it last, such as `GpuReport` or `nvidia-smi in a pod`; empty: nobody ever did."""
    age_s: float | None = None
    """How long ago that was."""
    state: str = UNKNOWN
    """known-free: idle and held by nobody; known-busy: held, or busy when it was seen; else unknown."""
    inventory: str = ""
    """Where it is known from that the card is there."""


@dataclass
class NodeGPUSummary:
    """The GPUs of one node."""

    node_name: str
    total_gpus: int
    """Physical cards; where only devices are advertised and nothing tells the cards, the devices."""
    allocatable_gpus: int
    gpus_with_metrics: list[GPUInfo]
    avg_utilization: float | None
    """Over the cards that told theirs; None: none did."""
    avg_memory_usage: float | None
    idle_gpu_count: int
    ready: bool = True
    schedulable: bool = True
    """Ready, not cordoned, without a taint that keeps pods away, and its inventory is not in doubt."""
    unknown_gpu_count: int = 0
    free_mb_by_gpu: dict[str, int] = field(default_factory=dict)
    """What may be promised, by UUID."""
    largest_free_mb: int | None = None
