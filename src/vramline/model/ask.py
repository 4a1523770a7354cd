"""What a pod wants, normalised: how many GPUs, how much on each, and which ones will do."""

import enum

import msgspec

from vramline.units import Mib

__all__ = [
    "Ask",
    "Constraints",
    "MibSize",
    "PolicyName",
    "RealtimeMode",
    "ShareSize",
    "Size",
    "UnsizedSize",
    "WholeSize",
]


class RealtimeMode(enum.StrEnum):
    """How an observation counts: refuse by it, warn by it, or do not look."""

    STRICT = "strict"
    WARNING = "warning"
    DISABLED = "disabled"


class PolicyName(enum.StrEnum):
    """How feasible nodes and GPUs are ranked."""

    BESTFIT = "bestfit"
    BINPACK = "binpack"
    SPREAD = "spread"
    MOSTIDLE = "mostidle"
    VRAMLINE = "vramline"
    FGD = "fgd"
    DOTPROD = "dotprod"
    CLUSTERING = "clustering"
    PACKING = "packing"
    RANDOM = "random"


class MibSize(msgspec.Struct, frozen=True, tag="mib"):
    """So many MiB on each card."""

    mib: Mib


class ShareSize(msgspec.Struct, frozen=True, tag="share"):
    """`numerator/denominator` of what an empty card can promise, rounded down."""

    numerator: int
    denominator: int


class WholeSize(msgspec.Struct, frozen=True, tag="whole"):
    """All that an empty card can promise."""


class UnsizedSize(msgspec.Struct, frozen=True, tag="unsized"):
    """A plain `nvidia.com/gpu: n`: whole cards, or one slot's share of a time-sliced card."""


Size = MibSize | ShareSize | WholeSize | UnsizedSize


class Constraints(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which cards will do. An empty tuple does not constrain."""

    use_models: tuple[str, ...] = ()
    """Lower-case substrings, one of which the model must contain."""
    avoid_models: tuple[str, ...] = ()
    use_uuids: tuple[str, ...] = ()
    avoid_uuids: tuple[str, ...] = ()
    numa_bind: bool = False
    """All cards from one NUMA node."""


class Ask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pod's wish for GPUs. `gpus` different physical GPUs on one node, `size` on each."""

    pod: str
    """namespace/name."""
    pod_uid: str
    gpus: int
    size: Size
    cores: int = 0
    """Compute share on each card, in percent; 0: none is claimed."""
    cpu_milli: int = 0
    """What the pod wants of the CPU: some policies weigh it. Nothing is refused by it."""
    constraints: Constraints = Constraints()
    mode: RealtimeMode | None = None
    """The pod's own choice of mode; None: what is in force for the cluster or node."""
    enable_realtime: bool | None = None
    """The pod's switch: False is disabled, True the mode otherwise in force, or strict if that is disabled;
    None: the pod does not say."""
    node_policy: PolicyName | None = None
    gpu_policy: PolicyName | None = None
