"""The last resort for NVIDIA's cards: what the program `nvidia-smi` prints.

It starts a process for every look and knows no links, no events and no graphics processes, so it is taken
only where the library cannot be loaded and the program runs all the same.
"""

import re
import shutil
import subprocess
import threading
from collections.abc import Collection, Sequence

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
    ProbeError,
    ProcessReading,
    Unsupported,
    Vendor,
)
from vramline.probes.faults import probe_error
from vramline.probes.lane import Lane, LaneTimeoutError
from vramline.probes.options import ProbeOptions
from vramline.probes.unanswered import select, unanswered
from vramline.units import Mib

__all__ = ["FIELDS", "SmiProbe", "parse_cards", "parse_processes"]

FIELDS = (
    "index",
    "uuid",
    "name",
    "pci.bus_id",
    "memory.total",
    "memory.used",
    "memory.reserved",
    "utilization.gpu",
    "temperature.gpu",
    "mig.mode.current",
    "ecc.errors.corrected.volatile.total",
    "ecc.errors.uncorrected.volatile.total",
)
_NEEDED = {"index", "uuid", "memory.total", "memory.used"}
_PROCESS_FIELDS = ("gpu_uuid", "pid", "used_memory")
_UNKNOWN_FIELD = re.compile(r'Field "(?P<name>[\w.]+)" is not a valid field')
_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)
_FAILURES = {
    "gpu is lost": "GPU_IS_LOST",
    "gpu requires reset": "RESET_REQUIRED",
    "insufficient permissions": "NO_PERMISSION",
}
_SAID = {
    "couldn't communicate with the nvidia driver": "DRIVER_NOT_LOADED",
    "driver/library version mismatch": "LIB_RM_VERSION_MISMATCH",
    "insufficient permissions": "NO_PERMISSION",
    "gpu is lost": "GPU_IS_LOST",
    "couldn't find libnvidia-ml": "LIBRARY_NOT_FOUND",
}


class SmiProbe:
    """Reads NVIDIA's cards through nvidia-smi; `DeviceProbe` has the contract."""

    vendor: str = Vendor.NVIDIA

    def __init__(self, options: ProbeOptions | None = None, *, program: str = "nvidia-smi") -> None:
        self._options = options or ProbeOptions()
        self._program = program
        self._fields: tuple[str, ...] = FIELDS
        self._known: dict[int, str] = {}
        self._lane = Lane("nvidia-smi")
        self._closed = threading.Event()

    @property
    def source(self) -> str:
        """Which program is run."""
        return f"nvidia-smi, {shutil.which(self._program) or self._program}"

    def open(self) -> None:
        """Run it once, and drop the fields that this version does not know. Raises `ProbeError`."""
        if shutil.which(self._program) is None:
            raise probe_error(
                "unable to run nvidia-smi", "LIBRARY_NOT_FOUND", tried=(f"{self._program} (not in PATH)",)
            )
        self._closed.clear()
        self.read()

    def read(self, uuids: Collection[str] | None = None) -> list[DeviceReading]:
        """Run it, and read what it prints. Raises `ProbeError` where it printed nothing before either."""
        answer = self._run_within_limit()
        if isinstance(answer, Failed):
            if not self._known:
                raise self._not_usable(answer)
            readings = [unanswered(self.vendor, uuid, index, answer) for index, uuid in self._known.items()]
        else:
            readings = answer
        for each in readings:
            if isinstance(each.index, int) and isinstance(each.uuid, str):
                self._known[each.index] = each.uuid
        return select(self.vendor, readings, uuids)

    def events(self, timeout_s: float) -> list[HealthEvent]:
        """Just wait: the program reports no events."""
        self._closed.wait(timeout_s)
        return []

    def close(self) -> None:
        """Let the thread end."""
        self._closed.set()
        self._lane.close()

    def _run_within_limit(self) -> list[DeviceReading] | Failed:
        try:
            return self._lane.run(self._read_once, self._options.timeout_s)
        except LaneTimeoutError as error:
            return Failed("TIMEOUT", f"nvidia-smi: {error}")

    def _read_once(self) -> list[DeviceReading] | Failed:
        cards = self._query(f"--query-gpu={','.join(self._fields)}")
        while isinstance(cards, Failed) and (unknown := _UNKNOWN_FIELD.search(cards.detail)):
            if unknown["name"] in _NEEDED or unknown["name"] not in self._fields:
                return cards
            self._fields = tuple(each for each in self._fields if each != unknown["name"])
            cards = self._query(f"--query-gpu={','.join(self._fields)}")
        if isinstance(cards, Failed):
            return cards
        processes = self._query(f"--query-compute-apps={','.join(_PROCESS_FIELDS)}")
        return parse_cards(cards, self._fields, processes)

    def _query(self, query: str) -> str | Failed:
        command = [self._program, query, "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(  # noqa: S603 # a fixed program with fixed words
                command, capture_output=True, text=True, errors="replace", timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Failed("UNREADABLE", f"nvidia-smi: {error}")
        if done.returncode == 0:
            return done.stdout
        said = " ".join(f"{done.stdout} {done.stderr}".split())
        code = next((code for words, code in _SAID.items() if words in said.lower()), "UNREADABLE")
        return Failed(code, f"nvidia-smi ended with {done.returncode}: {said[:500]}")

    def _not_usable(self, failure: Failed) -> ProbeError:
        return probe_error(f"unable to run nvidia-smi: {failure.detail}", failure.code)


def parse_cards(text: str, fields: Sequence[str], processes: str | Failed) -> list[DeviceReading] | Failed:
    """Read the lines of `--query-gpu`; a line that is no card spoils the whole answer, never a card in it."""
    readings = []
    for line in filter(None, map(str.strip, text.splitlines())):
        words = [word.strip() for word in line.split(",")]
        if len(words) != len(fields):
            return Failed("UNREADABLE", f"nvidia-smi printed {line[:200]!r}, not {len(fields)} fields")
        readings.append(_reading(dict(zip(fields, words, strict=True)), processes))
    return readings


def parse_processes(
    text: str | Failed, uuid: Answer[str], total: Answer[Mib]
) -> Answer[tuple[ProcessReading, ...]]:
    """Read the lines of `--query-compute-apps` that belong to one card; half a list is no list."""
    if isinstance(text, Failed):
        return text
    found: dict[int, ProcessReading] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        words = [word.strip() for word in line.split(",")]
        if len(words) != len(_PROCESS_FIELDS):
            return Failed("UNREADABLE", f"nvidia-smi printed {line[:200]!r}, not a process")
        pid = _number(words[1])
        number = believe_pid(pid) if isinstance(pid, int) else pid
        if not isinstance(number, int):
            return number
        if words[0] == uuid:
            used = _number(words[2])
            amount = believe_used(used << 20, total) if isinstance(used, int) else used
            found[number] = ProcessReading(pid=number, used=amount)
    return tuple(found[pid] for pid in sorted(found))


def _reading(words: dict[str, str], processes: str | Failed) -> DeviceReading:
    total = _amount(words, "memory.total")
    whole = believe_total(total << 20) if isinstance(total, int) else total
    used, reserved = _amount(words, "memory.used"), _amount(words, "memory.reserved")
    utilization, temperature = _amount(words, "utilization.gpu"), _amount(words, "temperature.gpu")
    uuid = _text(words, "uuid")
    mode = _text(words, "mig.mode.current")
    bus = _text(words, "pci.bus_id")
    return DeviceReading(
        uuid=uuid,
        index=_amount(words, "index"),
        vendor=Vendor.NVIDIA,
        physical_id=bus.lower().removeprefix("0000") if isinstance(bus, str) else bus,
        model=_text(words, "name"),
        total=whole,
        reserved=believe_used(reserved << 20, whole) if isinstance(reserved, int) else reserved,
        used=believe_used(used << 20, whole) if isinstance(used, int) else used,
        memory_source=MemorySource.SMI,
        utilization_percent=believe_percent(utilization) if isinstance(utilization, int) else utilization,
        temperature_c=believe_temperature(temperature) if isinstance(temperature, int) else temperature,
        processes=parse_processes(processes, uuid, whole),
        health=HealthFacts(
            ecc_corrected=_amount(words, "ecc.errors.corrected.volatile.total"),
            ecc_uncorrected=_amount(words, "ecc.errors.uncorrected.volatile.total"),
        ),
        mig_enabled=mode == "Enabled" if isinstance(mode, str) else mode,
    )


def _amount(words: dict[str, str], field: str) -> Answer[int]:
    return _number(words[field]) if field in words else Unsupported(f"nvidia-smi does not know {field}")


def _number(word: str) -> Answer[int]:
    answer = _answer(word)
    if not isinstance(answer, str):
        return answer
    if _NUMBER.fullmatch(answer):
        return int(answer)
    return Failed("UNREADABLE", f"{answer[:80]!r} is no number")


def _text(words: dict[str, str], field: str) -> Answer[str]:
    return _answer(words[field]) if field in words else Unsupported(f"nvidia-smi does not know {field}")


def _answer(word: str) -> Answer[str]:
    """Return what stands there; in brackets stands why there is nothing."""
    if not (word.startswith("[") and word.endswith("]")):
        return word or Failed("UNREADABLE", "an empty field")
    said = word[1:-1]
    if said.lower() in {
        "n/a",
        "not supported",
        "not available",
        "requested functionality has been deprecated",
    }:
        return Unsupported(said)
    return Failed(_FAILURES.get(said.lower(), "UNKNOWN"), said)
