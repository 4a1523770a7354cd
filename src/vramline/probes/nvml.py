"""Questions to NVML about one card, each answered by itself: one that fails spoils no other."""

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import pynvml

from vramline.probes.amounts import (
    believe_percent,
    believe_pid,
    believe_temperature,
    believe_total,
    believe_used,
)
from vramline.probes.device import (
    UNSUPPORTED,
    Answer,
    Failed,
    HealthFacts,
    Link,
    MemorySource,
    MigInstance,
    ProcessReading,
    Unsupported,
)
from vramline.probes.faults import UNSUPPORTED_CODES, failed, nvml_code
from vramline.units import Mib

__all__ = ["Handle", "Memory", "Questions", "ask", "is_unified"]

T = TypeVar("T")
Handle = Any
"""nvidia-ml-py's pointer to a card."""

_UNIFIED_CAPABILITIES = {(8, 7), (10, 1), (11, 0), (12, 1)}
_UNIFIED_NAMES = ("orin", "thor", "gb10")
_ANCESTORS = {0: "internal", 10: "single", 20: "multiple", 30: "hostbridge", 40: "node", 50: "system"}
_NVLINK = 2
_NUMA_WORDS = 16


def ask(question: Callable[[], T], what: str) -> Answer[T]:
    """Return an answer of NVML, or why there is none; `what` was asked for is in the message."""
    try:
        return question()
    except pynvml.NVMLError as error:
        code = nvml_code(error.value)
        if code in UNSUPPORTED_CODES:
            return Unsupported(str(error))
        return failed(code, f"failed to get {what}", str(error))
    except pynvml.NVMLLibraryMismatchError:
        return Unsupported("the driver is older than this question")
    except UnicodeDecodeError as error:
        return Failed("NONSENSE", f"{what}: {error}")


class Memory(NamedTuple):
    """A card's memory as NVML tells it."""

    total: Answer[Mib]
    reserved: Answer[Mib]
    used: Answer[Mib]
    source: Answer[MemorySource]

    @classmethod
    def unknown(cls, why: Unsupported | Failed) -> "Memory":
        """Return memory of which nothing is known."""
        return cls(why, why, why, why)


class Questions:
    """What can be asked about one card, or about one slice of it."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def uuid(self) -> Answer[str]:
        """Return the UUID."""
        return ask(lambda: str(pynvml.nvmlDeviceGetUUID(self._handle)), "device uuid")

    def model(self) -> Answer[str]:
        """Return the name of the product."""
        return ask(lambda: str(pynvml.nvmlDeviceGetName(self._handle)), "device name")

    def capability(self) -> Answer[tuple[int, int]]:
        """Return CUDA's compute capability."""
        return ask(
            lambda: _pair(pynvml.nvmlDeviceGetCudaComputeCapability(self._handle)), "compute capability"
        )

    def physical_id(self) -> Answer[str]:
        """Return the PCI bus id as sysfs spells it."""
        answer = ask(lambda: pynvml.nvmlDeviceGetPciInfo(self._handle).busId, "PCI bus id")
        if isinstance(answer, Unsupported | Failed):
            return answer
        text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
        domain, _, rest = text.lower().partition(":")
        return f"{domain[-4:] if domain[:-4].strip('0') == '' else domain}:{rest}"

    def memory(self) -> Memory:
        """Return total, reserved and used. The older call, where need be, counts the reserved as used."""
        newer = ask(
            lambda: pynvml.nvmlDeviceGetMemoryInfo(self._handle, version=pynvml.nvmlMemory_v2), "memory"
        )
        if not isinstance(newer, Unsupported | Failed):
            total = believe_total(newer.total)
            return Memory(
                total,
                believe_used(newer.reserved, total, what="reserved"),
                believe_used(newer.used, total),
                MemorySource.NVML,
            )
        if isinstance(newer, Failed):
            return Memory.unknown(newer)
        older = ask(lambda: pynvml.nvmlDeviceGetMemoryInfo(self._handle), "memory")
        if isinstance(older, Unsupported | Failed):
            return Memory.unknown(older)
        total = believe_total(older.total)
        return Memory(
            total,
            Unsupported("this driver counts it as used"),
            believe_used(older.used, total),
            MemorySource.NVML_V1,
        )

    def processes(self, total: Answer[Mib]) -> Answer[tuple[ProcessReading, ...]]:
        """Return who is on the card, each once with the larger of its figures. Half a list is no list."""
        lists = [
            self._listed("compute", pynvml.nvmlDeviceGetComputeRunningProcesses_v3, "_v2"),
            self._listed("graphics", pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3, "_v2"),
        ]
        for each in lists:
            if isinstance(each, Failed):
                return each
        known = [each for each in lists if isinstance(each, list)]
        if not isinstance(lists[0], list):  # whoever only draws is not everybody
            return Unsupported("the driver lists no processes that compute")
        return _merge([process for each in known for process in each], total)

    def _listed(self, kind: str, newest: Callable[[Handle], Any], older: str) -> Answer[list[Any]]:
        answer = ask(lambda: list(newest(self._handle)), f"{kind} processes")
        if isinstance(answer, Unsupported):
            fallback = getattr(pynvml, newest.__name__.removesuffix("_v3") + older)
            answer = ask(lambda: list(fallback(self._handle)), f"{kind} processes")
        return answer

    def utilization(self) -> Answer[int]:
        """Return how much of the time the card computed, in percent."""
        answer = ask(lambda: int(pynvml.nvmlDeviceGetUtilizationRates(self._handle).gpu), "utilisation")
        return believe_percent(answer) if isinstance(answer, int) else answer

    def temperature(self) -> Answer[int]:
        """Return the temperature of the chip in °C, by the newer call or the older one."""
        sensor = pynvml.NVML_TEMPERATURE_GPU
        answer = ask(lambda: int(pynvml.nvmlDeviceGetTemperatureV(self._handle, sensor)), "temperature")
        if isinstance(answer, Unsupported):
            answer = ask(lambda: int(pynvml.nvmlDeviceGetTemperature(self._handle, sensor)), "temperature")
        return believe_temperature(answer) if isinstance(answer, int) else answer

    def health(self) -> HealthFacts:
        """Return ECC counts since the driver was loaded, and the state of spare memory rows."""
        rows = ask(lambda: tuple(pynvml.nvmlDeviceGetRemappedRows(self._handle)), "remapped rows")
        return HealthFacts(
            ecc_corrected=self._ecc(pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ecc_uncorrected=self._ecc(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            rows_pending=rows[2] != 0 if isinstance(rows, tuple) else rows,
            rows_failed=rows[3] != 0 if isinstance(rows, tuple) else rows,
        )

    def _ecc(self, kind: int) -> Answer[int]:
        counter = pynvml.NVML_VOLATILE_ECC
        return ask(lambda: int(pynvml.nvmlDeviceGetTotalEccErrors(self._handle, kind, counter)), "ECC errors")

    def numa(self) -> Answer[int]:
        """Return the NUMA node nearest to the card."""
        scope = pynvml.NVML_AFFINITY_SCOPE_NODE
        words = ask(
            lambda: list(pynvml.nvmlDeviceGetMemoryAffinity(self._handle, _NUMA_WORDS, scope)), "NUMA node"
        )
        if isinstance(words, Unsupported | Failed):
            return words
        bits = sum(word << (64 * place) for place, word in enumerate(words))
        return (bits & -bits).bit_length() - 1 if bits else UNSUPPORTED

    def memory_numa(self) -> Answer[int]:
        """Return the NUMA node that the card's own memory is, on machines where it is one."""
        return ask(lambda: int(pynvml.nvmlDeviceGetNumaNodeId(self._handle)), "NUMA node of its memory")

    def link(self, peer: str, other: Handle) -> Link:
        """Return how the card reaches another one."""
        status = ask(
            lambda: int(pynvml.nvmlDeviceGetP2PStatus(self._handle, other, ctypes.c_int(_NVLINK))), "NVLink"
        )
        level = ask(
            lambda: int(pynvml.nvmlDeviceGetTopologyCommonAncestor(self._handle, other)), "PCIe topology"
        )
        return Link(
            peer=peer,
            nvlink=status == 0 if isinstance(status, int) else status,
            ancestor=_ANCESTORS.get(level, str(level)) if isinstance(level, int) else level,
        )

    def mig_enabled(self) -> Answer[bool]:
        """Return whether the card is partitioned now."""
        return ask(lambda: pynvml.nvmlDeviceGetMigMode(self._handle)[0] == 1, "MIG mode")

    def mig(self) -> Answer[tuple[MigInstance, ...]]:
        """Return the instances of a partitioned card; half of them is none."""
        count = ask(lambda: int(pynvml.nvmlDeviceGetMaxMigDeviceCount(self._handle)), "MIG instances")
        if not isinstance(count, int):
            return count
        found = []
        for place in range(count):
            get = partial(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, self._handle, place)
            handle = ask(get, "MIG instance")
            if isinstance(handle, Failed) and handle.code in {"NOT_FOUND", "INVALID_ARGUMENT"}:
                continue
            if isinstance(handle, Unsupported | Failed):
                return handle
            instance = Questions(handle).as_instance()
            if isinstance(instance, Unsupported | Failed):
                return instance
            found.append(instance)
        return tuple(found)

    def as_instance(self) -> Answer[MigInstance]:
        """Return everything about a slice."""
        uuid, memory = self.uuid(), self.memory()
        if not isinstance(uuid, str):
            return uuid
        return MigInstance(
            uuid=uuid,
            model=self.model(),
            gpu_instance=ask(lambda: int(pynvml.nvmlDeviceGetGpuInstanceId(self._handle)), "GPU instance"),
            compute_instance=ask(
                lambda: int(pynvml.nvmlDeviceGetComputeInstanceId(self._handle)), "compute instance"
            ),
            total=memory.total,
            reserved=memory.reserved,
            used=memory.used,
            processes=self.processes(memory.total),
        )


def is_unified(model: Answer[str], capability: Answer[tuple[int, int]]) -> bool:
    """Whether a card has no memory of its own: Orin, Thor, GB10.

    >>> is_unified("NVIDIA Thor", UNSUPPORTED), is_unified("NVIDIA GeForce RTX 5090", (12, 0))
    (True, False)
    """
    named = isinstance(model, str) and any(name in model.lower() for name in _UNIFIED_NAMES)
    return named or (isinstance(capability, tuple) and capability in _UNIFIED_CAPABILITIES)


def _merge(listed: list[Any], total: Answer[Mib]) -> Answer[tuple[ProcessReading, ...]]:
    largest: dict[int, Answer[Mib]] = {}
    for each in listed:
        pid = believe_pid(each.pid)
        if not isinstance(pid, int):
            return pid
        used = _used_by(each.usedGpuMemory, total)
        before = largest.get(pid, used)
        if isinstance(before, int) and isinstance(used, int):
            largest[pid] = Mib(max(before, used))
        else:
            largest[pid] = before if isinstance(before, int) else used
    return tuple(ProcessReading(pid=pid, used=largest[pid]) for pid in sorted(largest))


def _used_by(amount: int | None, total: Answer[Mib]) -> Answer[Mib]:
    if amount is None:
        return Unsupported("the driver does not tell how much")
    return believe_used(amount, total if isinstance(total, int) else believe_total(2**42))


def _pair(answer: Any) -> tuple[int, int]:  # noqa: ANN401 # nvidia-ml-py has no types
    major, minor = answer
    return int(major), int(minor)
