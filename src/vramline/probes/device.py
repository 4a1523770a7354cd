"""What a probe says of a card, whoever made it.

Every field of a reading is a value, `Unsupported` (the card, its driver or this machine cannot tell) or
`Failed` (it could, but did not this time). Neither is zero, false or empty: both refuse to be used as a
truth value, so that forgetting to look which of the three it is becomes an error at once.
"""

import enum
from collections.abc import Collection
from typing import NoReturn, Protocol, TypeAlias, TypeVar

import msgspec

from vramline.errors import TransientError
from vramline.units import Mib

__all__ = [
    "UNSUPPORTED",
    "Answer",
    "DeviceProbe",
    "DeviceReading",
    "Failed",
    "HealthEvent",
    "HealthFacts",
    "Link",
    "MemorySource",
    "MigInstance",
    "ProbeError",
    "ProcessReading",
    "Unsupported",
    "Vendor",
]

T = TypeVar("T")


class Vendor(enum.StrEnum):
    """Makers of accelerators that Vramline knows by name."""

    NVIDIA = "nvidia"
    AMD = "amd"
    INTEL = "intel"
    HYGON = "hygon"
    CAMBRICON = "cambricon"
    ILUVATAR = "iluvatar"
    MTHREADS = "mthreads"
    ENFLAME = "enflame"
    ASCEND = "ascend"
    KUNLUN = "kunlun"
    NEURON = "neuron"
    METAX = "metax"


class MemorySource(enum.StrEnum):
    """Where a memory figure came from."""

    NVML = "nvml"
    """`nvmlDeviceGetMemoryInfo` v2: what the driver reserves is told apart."""
    NVML_V1 = "nvml-v1"
    """The older call: `used` includes what the driver reserves."""
    NVML_PROCESSES = "nvml-processes"
    """The sum over the processes that NVML lists."""
    NVMAP = "nvmap"
    """The allocator of Tegra boards: its clients in debugfs, or NvMapMemUsed in /proc/meminfo."""
    HOST = "meminfo"
    """/proc/meminfo: the card has no memory of its own."""
    SMI = "nvidia-smi"
    AMDSMI = "amdsmi"


class Unsupported(msgspec.Struct, frozen=True, tag="unsupported"):
    """The card, its driver or this machine does not tell this, and will not when asked again."""

    detail: str = ""

    def __bool__(self) -> NoReturn:
        raise TypeError(f"an answer that is not supported ({self.detail}) is neither true nor false")


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The question was asked and not answered this time, or answered with nonsense."""

    code: str
    """Stable, such as GPU_IS_LOST or TIMEOUT; docs/probes.md lists them."""
    detail: str = ""

    def __bool__(self) -> NoReturn:
        raise TypeError(f"a failed answer ({self.code} {self.detail}) is neither true nor false")


Answer: TypeAlias = T | Unsupported | Failed

UNSUPPORTED = Unsupported()


class ProcessReading(msgspec.Struct, frozen=True, kw_only=True):
    """One process that holds memory on a card. The number is that of the probe's own PID namespace."""

    pid: int
    used: Answer[Mib] = UNSUPPORTED


class MigInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One slice of a partitioned card, with memory that nobody else can take."""

    uuid: str
    model: Answer[str] = UNSUPPORTED
    gpu_instance: Answer[int] = UNSUPPORTED
    compute_instance: Answer[int] = UNSUPPORTED
    total: Answer[Mib] = UNSUPPORTED
    reserved: Answer[Mib] = UNSUPPORTED
    used: Answer[Mib] = UNSUPPORTED
    processes: Answer[tuple[ProcessReading, ...]] = UNSUPPORTED


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """How a card reaches another one of the same machine."""

    peer: str
    """UUID of the other card."""
    nvlink: Answer[bool] = UNSUPPORTED
    """Whether they reach each other over NVLink, directly or through a switch."""
    ancestor: Answer[str] = UNSUPPORTED
    """What PCIe has in common: internal, single, multiple, hostbridge, node or system; near to far."""


class HealthFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a card says about its own condition. Counts are since the driver was loaded."""

    ecc_corrected: Answer[int] = UNSUPPORTED
    ecc_uncorrected: Answer[int] = UNSUPPORTED
    rows_pending: Answer[bool] = UNSUPPORTED
    """Memory rows wait to be replaced: the card needs a reset."""
    rows_failed: Answer[bool] = UNSUPPORTED
    """No spare row was left: the card needs to be replaced."""


class DeviceReading(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one physical card. Memory in MiB: totals rounded down, use and reserve rounded up."""

    uuid: Answer[str]
    """Known from an earlier look where the card does not answer any more."""
    index: Answer[int] = UNSUPPORTED
    vendor: str
    physical_id: Answer[str] = UNSUPPORTED
    """PCI bus id, lower case, as sysfs spells it: 0000:3b:00.0."""
    model: Answer[str] = UNSUPPORTED
    total: Answer[Mib] = UNSUPPORTED
    reserved: Answer[Mib] = UNSUPPORTED
    """What the driver keeps for itself; on unified memory, what is kept for the host."""
    used: Answer[Mib] = UNSUPPORTED
    """Without `reserved` where that is known, including it where it is not."""
    memory_source: Answer[MemorySource] = UNSUPPORTED
    unified: Answer[bool] = False
    """The memory is the host's: `total` and `used` are those of the whole machine, for one pool."""
    used_by_gpu: Answer[Mib] = UNSUPPORTED
    """On unified memory, the part of `used` that GPU allocations hold."""
    used_by_gpu_source: Answer[MemorySource] = UNSUPPORTED
    utilization_percent: Answer[int] = UNSUPPORTED
    temperature_c: Answer[int] = UNSUPPORTED
    processes: Answer[tuple[ProcessReading, ...]] = UNSUPPORTED
    """Compute and graphics, each process once. Empty: the card is idle, as far as this namespace sees."""
    health: HealthFacts = HealthFacts()
    numa: Answer[int] = UNSUPPORTED
    """The NUMA node of the CPUs next to the card."""
    memory_numa: Answer[int] = UNSUPPORTED
    """The NUMA node that the card's memory is. The kernel may keep pages there after a process ended,
    so that `used` overstates."""
    links: Answer[tuple[Link, ...]] = UNSUPPORTED
    mig_enabled: Answer[bool] = UNSUPPORTED
    mig: Answer[tuple[MigInstance, ...]] = UNSUPPORTED
    """The instances; `total` and `used` above are then those of the whole card."""


class HealthEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something the driver reported about a card."""

    uuid: str | None
    """None: the driver did not say which card."""
    xid: int
    """NVIDIA's number of the kind of fault."""
    text: str


class ProbeError(TransientError):
    """The cards of one vendor cannot be read at all: the reason, every path tried and what to do."""

    def __init__(
        self, message: str, *, code: str, cause: str, advice: str, tried: tuple[str, ...] = ()
    ) -> None:
        self.code = code
        self.cause = cause
        self.tried = tried
        self.advice = advice
        where = f"; tried {', '.join(tried)}" if tried else ""
        self.summary = f"{message}: {cause}{where}"
        """The message without the advice."""
        super().__init__(f"{self.summary}. {advice}", retry_after_s=30.0)


class DeviceProbe(Protocol):
    """Reads the cards of one vendor on this machine.

    Calls block, but never longer than the probe's own time limit: run them in a thread. One caller at a
    time, except for `events`, which may wait beside a `read`.
    """

    @property
    def vendor(self) -> str:
        """Whose cards, in lower case; a `Vendor` where Vramline knows it."""

    @property
    def source(self) -> str:
        """What is read through: a library's path, a program. For people."""

    def open(self) -> None:
        """Get ready to read. Raises `ProbeError`; may be called again after it, or after `close`."""

    def read(self, uuids: Collection[str] | None = None) -> list[DeviceReading]:
        """Return a reading of each card, or of those named, in order of index.

        A named card that is not there has `Failed("NOT_FOUND")` in its fields. Raises `ProbeError` only
        where nothing at all can be said.
        """

    def events(self, timeout_s: float) -> list[HealthEvent]:
        """Wait for faults that the driver reports, at most so long; empty: there were none."""

    def close(self) -> None:
        """Let go of the library. Never raises."""
