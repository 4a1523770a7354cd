"""AMD's cards, through the optional package `amdsmi` and ROCm's libamd_smi.so.

Not asked for: links, partitions (each is listed as a card of its own), APUs whose memory is the host's.
"""

import contextlib
import importlib
import io
import threading
from collections.abc import Callable, Collection
from functools import partial
from types import ModuleType
from typing import Any, TypeVar

from vramline.probes.amounts import (
    believe_percent,
    believe_pid,
    believe_temperature,
    believe_total,
    believe_used,
)
from vramline.probes.device import (
    Answer,
    DeviceReading,
    Failed,
    HealthEvent,
    HealthFacts,
    MemorySource,
    ProcessReading,
    Unsupported,
    Vendor,
)
from vramline.probes.faults import probe_error
from vramline.probes.lane import Lane, LaneTimeoutError
from vramline.probes.options import ProbeOptions
from vramline.probes.unanswered import select, unanswered
from vramline.units import Mib

__all__ = ["AmdProbe"]

T = TypeVar("T")
_UNSUPPORTED = {"NOT_SUPPORTED", "NOT_YET_IMPLEMENTED", "NO_DATA", "FILE_NOT_FOUND"}
_CODES = {
    "NO_PERM": "NO_PERMISSION",
    "DRIVER_NOT_LOADED": "DRIVER_NOT_LOADED",
    "NOT_FOUND": "NOT_FOUND",
    "TIMEOUT": "TIMEOUT",
    "NOT_INIT": "UNINITIALIZED",
    "INIT_ERROR": "DRIVER_NOT_LOADED",
    "OUT_OF_RESOURCES": "MEMORY",
}
_TRIED = (
    "$ROCM_HOME/lib/libamd_smi.so",
    "$ROCM_PATH/lib/libamd_smi.so",
    "libamd_smi.so (default linker)",
    "/opt/rocm/lib/libamd_smi.so",
)
_ADVICE = "Install the extra `vramline[amd]`, and ROCm's amd-smi-lib on the node, mounted at the same path"


class AmdProbe:
    """Reads AMD's cards; `DeviceProbe` has the contract."""

    vendor: str = Vendor.AMD

    def __init__(self, options: ProbeOptions | None = None) -> None:
        self._options = options or ProbeOptions()
        self._lane = Lane("amdsmi")
        self._closed = threading.Event()
        self._library: Any = None
        self._known: dict[int, str] = {}

    @property
    def source(self) -> str:
        """Which package is used."""
        return (
            "amdsmi"
            if self._library is None
            else f"amdsmi {getattr(self._library, '__version__', '')}".strip()
        )

    def open(self) -> None:
        """Import and initialise the package. Raises `ProbeError`."""
        self._library = _import_library()
        self._closed.clear()
        answer = self._within_limit(lambda: self._ask(self._library.amdsmi_init))
        if isinstance(answer, Unsupported | Failed):
            code = answer.code if isinstance(answer, Failed) else "UNKNOWN"
            raise probe_error(f"unable to initialize amdsmi: {answer.detail}", code)

    def read(self, uuids: Collection[str] | None = None) -> list[DeviceReading]:
        """Return a reading of each card, or of those named, within the time limit."""
        answer = self._within_limit(self._read_all)
        if isinstance(answer, Failed):
            if not self._known:
                raise probe_error(f"unable to list AMD's cards: {answer.detail}", answer.code)
            answer = [unanswered(self.vendor, uuid, index, answer) for index, uuid in self._known.items()]
        for each in answer:
            if isinstance(each.index, int) and isinstance(each.uuid, str):
                self._known[each.index] = each.uuid
        return select(self.vendor, answer, uuids)

    def events(self, timeout_s: float) -> list[HealthEvent]:
        """Just wait: AMD's events are not read."""
        self._closed.wait(timeout_s)
        return []

    def close(self) -> None:
        """Shut the package down, unless a call hangs in it."""
        self._closed.set()
        if self._library is not None and not self._lane.is_hung:
            self._within_limit(lambda: self._ask(self._library.amdsmi_shut_down))
        self._lane.close()
        self._library = None

    def _read_all(self) -> list[DeviceReading] | Failed:
        handles = self._ask(self._library.amdsmi_get_processor_handles)
        if isinstance(handles, Unsupported | Failed):
            return Failed("UNKNOWN", handles.detail) if isinstance(handles, Unsupported) else handles
        return [self._read_card(index, handle) for index, handle in enumerate(handles)]

    def _read_card(self, index: int, handle: object) -> DeviceReading:
        smi = self._library
        uuid = self._ask(lambda: str(smi.amdsmi_get_gpu_device_uuid(handle)))
        if not isinstance(uuid, str):
            return unanswered(self.vendor, self._known.get(index), index, uuid)
        vram = smi.AmdSmiMemoryType.VRAM
        total = _then(self._ask(lambda: int(smi.amdsmi_get_gpu_memory_total(handle, vram))), believe_total)
        used = self._ask(lambda: int(smi.amdsmi_get_gpu_memory_usage(handle, vram)))
        ecc = self._ask(lambda: dict(smi.amdsmi_get_gpu_total_ecc_count(handle)))
        return DeviceReading(
            uuid=uuid,
            index=index,
            vendor=self.vendor,
            physical_id=self._ask(lambda: str(smi.amdsmi_get_gpu_device_bdf(handle)).lower()),
            model=self._ask(lambda: _known_text(smi.amdsmi_get_gpu_asic_info(handle)["market_name"])),
            total=total,
            reserved=Unsupported("amdgpu does not tell it apart"),
            used=_then(used, lambda amount: believe_used(amount, total)),
            memory_source=MemorySource.AMDSMI,
            utilization_percent=self._utilization(handle),
            temperature_c=self._temperature(handle),
            processes=self._processes(handle, total),
            health=HealthFacts(
                ecc_corrected=ecc["correctable_count"] if isinstance(ecc, dict) else ecc,
                ecc_uncorrected=ecc["uncorrectable_count"] if isinstance(ecc, dict) else ecc,
            ),
            numa=self._ask(lambda: int(smi.amdsmi_topo_get_numa_node_number(handle))),
        )

    def _utilization(self, handle: object) -> Answer[int]:
        answer = self._ask(lambda: self._library.amdsmi_get_gpu_activity(handle)["gfx_activity"])
        return believe_percent(answer) if isinstance(answer, int) else _not_a_number(answer)

    def _temperature(self, handle: object) -> Answer[int]:
        """Return the hottest point's temperature, or the edge's: accelerators know only one of them."""
        smi = self._library
        current = smi.AmdSmiTemperatureMetric.CURRENT
        answer: Answer[int] = Unsupported()
        for sensor in (smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureType.EDGE):
            answer = self._ask(partial(smi.amdsmi_get_temp_metric, handle, sensor, current))
            if isinstance(answer, int):
                return believe_temperature(answer)
        return _not_a_number(answer)

    def _processes(self, handle: object, total: Answer[Mib]) -> Answer[tuple[ProcessReading, ...]]:
        listed = self._ask(lambda: list(self._library.amdsmi_get_gpu_process_list(handle)))
        if isinstance(listed, Unsupported | Failed):
            return listed
        found = {}
        for each in listed:
            pid = believe_pid(int(each["pid"]))
            if not isinstance(pid, int):
                return pid
            amount = believe_used(int(each["memory_usage"]["vram_mem"]), total)
            found[pid] = ProcessReading(pid=pid, used=amount)
        return tuple(found[pid] for pid in sorted(found))

    def _ask(self, question: Callable[[], T]) -> Answer[T]:
        try:
            return question()
        except self._library.AmdSmiLibraryException as error:
            text = str(error.get_error_info())
            name = text.partition(" - ")[0].removeprefix("AMDSMI_STATUS_")
            return Unsupported(text) if name in _UNSUPPORTED else Failed(_CODES.get(name, "UNKNOWN"), text)
        except (self._library.AmdSmiException, KeyError, TypeError, ValueError) as error:
            return Failed("UNREADABLE", f"{type(error).__name__}: {error}")

    def _within_limit(self, call: Callable[[], T]) -> T | Failed:
        try:
            return self._lane.run(call, self._options.timeout_s)
        except LaneTimeoutError as error:
            return Failed("TIMEOUT", f"amdsmi: {error}")


def _import_library() -> ModuleType:
    """Import amdsmi. It loads ROCm's library as it is imported, and prints and fails without it."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            return importlib.import_module("amdsmi")
    except (ImportError, OSError, KeyError, AttributeError) as error:
        why = " ".join(f"{said.getvalue()} {error}".split())
        message = f"unable to initialize amdsmi: {why}"
        raise probe_error(message, "LIBRARY_NOT_FOUND", tried=_TRIED, advice=_ADVICE) from error


def _then(answer: Answer[int], believe: Callable[[int], Answer[Mib]]) -> Answer[Mib]:
    return believe(answer) if isinstance(answer, int) else answer


def _known_text(text: object) -> str:
    if not isinstance(text, str) or text in {"", "N/A"}:
        raise ValueError("no text")
    return text


def _not_a_number(answer: object) -> Unsupported | Failed:
    return answer if isinstance(answer, Unsupported | Failed) else Unsupported(str(answer))
