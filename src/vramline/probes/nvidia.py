"""NVIDIA's cards, through NVML.

Each card is read in a lane of its own: one that hangs times out, and the others answer as ever. The UUID is
asked every time, so that another card in the same place is noticed. A card that was there and is not any more
stays in the list, as failed, for as long as there are fewer cards than there were: one that fell off the bus
must not just be forgotten.
"""

import contextlib
import platform
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, TypeVar

import msgspec
import pynvml

from vramline.probes.device import Answer, DeviceReading, Failed, HealthEvent, ProbeError, Vendor
from vramline.probes.faults import failed, nvml_code, probe_error
from vramline.probes.lane import Lane, LaneTimeoutError, Outcome
from vramline.probes.library import FoundLibrary
from vramline.probes.nvidia_card import CardReader, Place
from vramline.probes.nvml import Handle, Questions
from vramline.probes.nvml_library import load_nvml
from vramline.probes.options import ProbeOptions
from vramline.probes.unanswered import unanswered
from vramline.probes.xid import describe_xid

__all__ = ["NvidiaProbe"]

T = TypeVar("T")

_HEAL_AFTER_S, _HEAL_AT_LAST_AFTER_S = 30.0, 480.0
_EVENT_SLICE_S = 0.5
_CURED_BY_REOPENING = {"UNINITIALIZED", "GPU_IS_LOST", "GPU_NOT_FOUND", "DRIVER_NOT_LOADED", "RESET_REQUIRED"}


class NvidiaProbe:
    """Reads NVIDIA's cards; `DeviceProbe` has the contract."""

    vendor: str = Vendor.NVIDIA

    def __init__(self, options: ProbeOptions | None = None) -> None:
        self._options = options or ProbeOptions()
        self._library: FoundLibrary | None = None
        self._reader = CardReader(root=self._options.root, host_reserve=self._options.host_reserve)
        self._control, self._events = Lane("nvml"), Lane("nvml-events")
        self._lanes: dict[int, Lane] = {}
        self._handles: dict[int, Handle] = {}
        self._known: dict[int, str] = {}
        """UUID by index, as last seen."""
        self._seen: set[str] = set()
        self._most = 0
        """How many cards there were at most."""
        self._is_open = False
        self._event_set: object | None = None
        self._reading = threading.Lock()
        self._library_use = threading.Lock()
        """Held while the library must stay open."""
        self._failure: Failed | None = None
        self._heal_at: float | None = None
        self._heal_after_s = _HEAL_AFTER_S
        self._closed = threading.Event()

    @property
    def source(self) -> str:
        """Which library is used, and how it was found."""
        return "NVML" if self._library is None else f"NVML, {self._library.path} ({self._library.kind})"

    def open(self) -> None:
        """Load and initialise the library. Raises `ProbeError`."""
        self._library = load_nvml(
            root=self._options.root,
            machine=platform.machine(),
            explicit=self._options.library,
            driver_roots=self._options.driver_roots,
        )
        self._reopen()
        if self._failure is not None:
            raise self._not_usable(self._failure)
        self._closed.clear()

    def read(self, uuids: Collection[str] | None = None) -> list[DeviceReading]:
        """Return a reading of each card, or of those named, within the time limit."""
        with self._reading:
            self._heal()
            count = self._count()
            if isinstance(count, Failed):
                known = sorted(self._known.items())
                readings = [unanswered(Vendor.NVIDIA, uuid, index, count) for index, uuid in known]
                if not readings:
                    raise self._not_usable(count)
            else:
                readings = self._read_cards(count, uuids)
            self._remember(readings)
            readings = self._complete(readings, uuids)
            if uuids is None:
                self._plan_to_heal(readings)
            return readings

    def events(self, timeout_s: float) -> list[HealthEvent]:
        """Wait for Xid events, at most so long; where no card reports any, just wait."""
        until = time.monotonic() + timeout_s
        while not self._closed.is_set() and (left := until - time.monotonic()) > 0:
            slice_s = min(left, _EVENT_SLICE_S)
            wait = partial(self._wait_for_event, slice_s)
            limit = time.monotonic() + slice_s + self._options.timeout_s
            try:
                found = self._events.begin(wait).wait(limit)
            except LaneTimeoutError:
                self._closed.wait(slice_s)
                continue
            if found is not None:
                return [found]
        return []

    def close(self) -> None:
        """Shut the library down, unless a call hangs in it: that one would be cut off from what it uses."""
        self._closed.set()
        if self._is_open and not self._is_hung() and self._library_use.acquire(timeout=2 * _EVENT_SLICE_S):
            self._in_control(pynvml.nvmlShutdown, "unable to shut NVML down")
            self._library_use.release()
        for lane in (self._control, self._events, *self._lanes.values()):
            lane.close()
        self._library, self._event_set, self._heal_at = None, None, None
        self._is_open, self._most = False, 0
        self._handles.clear()
        self._known.clear()
        self._seen.clear()

    def _count(self) -> int | Failed:
        if self._failure is not None:
            return self._failure
        return self._in_control(lambda: int(pynvml.nvmlDeviceGetCount()), "unable to get device count")

    def _read_cards(self, count: int, uuids: Collection[str] | None) -> list[DeviceReading]:
        began = time.monotonic()
        self._most = max(self._most, count)
        self._known = {index: uuid for index, uuid in self._known.items() if index < count}
        self._identify(set(range(count)) - self._known.keys(), began + self._options.timeout_s / 2)
        wanted = [index for index in range(count) if uuids is None or self._known.get(index) in uuids]
        if uuids is not None and len(wanted) < len(set(uuids)):
            wanted = list(range(count))
        begun = [(index, self._lane(index).begin(partial(self._read_card, index))) for index in wanted]
        until = began + self._options.timeout_s
        return _name_each_once([self._collect(index, outcome, until) for index, outcome in begun])

    def _identify(self, indexes: Collection[int], until: float) -> None:
        """Learn which UUID is where, before cards are asked about each other."""
        begun = [(index, self._lane(index).begin(partial(self._uuid_of, index))) for index in indexes]
        for index, outcome in begun:
            with contextlib.suppress(LaneTimeoutError):
                uuid = outcome.wait(until)
                if isinstance(uuid, str):
                    self._known[index] = uuid

    def _uuid_of(self, index: int) -> Answer[str]:
        handle = self._handle_of(index)
        return handle if isinstance(handle, Failed) else Questions(handle).uuid()

    def _read_card(self, index: int) -> DeviceReading:
        peers = {uuid: self._handles[other] for other, uuid in self._known.items() if other in self._handles}
        return self._reader.read(Place(index, self._handle_of(index)), self._known.get(index), peers)

    def _handle_of(self, index: int) -> Handle | Failed:
        """Return NVML's pointer to a card, in its lane: getting it may wake the card, or hang with it."""
        if index not in self._handles:
            handle = _ask(partial(pynvml.nvmlDeviceGetHandleByIndex, index), "failed to get device handle")
            if isinstance(handle, Failed):
                return handle
            self._handles[index] = handle
        return self._handles[index]

    def _collect(self, index: int, outcome: Outcome[DeviceReading], until: float) -> DeviceReading:
        try:
            return outcome.wait(until)
        except LaneTimeoutError as error:
            why = Failed("TIMEOUT", str(error))
            return unanswered(Vendor.NVIDIA, self._known.get(index), index, why)

    def _remember(self, readings: list[DeviceReading]) -> None:
        for reading in readings:
            if isinstance(reading.index, int) and isinstance(reading.uuid, str):
                self._known[reading.index] = reading.uuid
                self._seen.add(reading.uuid)

    def _plan_to_heal(self, readings: list[DeviceReading]) -> None:
        """Have the library opened anew in a while, where that may cure a card."""
        codes = {each.model.code for each in readings if isinstance(each.model, Failed)}
        if not codes & _CURED_BY_REOPENING:
            self._heal_at, self._heal_after_s = None, _HEAL_AFTER_S
        elif self._heal_at is None:
            self._heal_at = self._options.clock() + self._heal_after_s

    def _complete(self, readings: list[DeviceReading], uuids: Collection[str] | None) -> list[DeviceReading]:
        """Add cards that were there before, or that were asked for, as failed."""
        if uuids is None and len(readings) >= self._most:
            self._seen &= {each.uuid for each in readings}  # who is missing was replaced
        found = [each for each in readings if uuids is None or each.uuid in uuids]
        missing = (self._seen if uuids is None else set(uuids)) - {each.uuid for each in found}
        for uuid in sorted(missing):
            code = "GPU_NOT_FOUND" if uuid in self._seen else "NOT_FOUND"
            why = failed(code, f"failed to get device handle for UUID {uuid}")
            found.append(unanswered(Vendor.NVIDIA, uuid, None, why))
        return found

    def _heal(self) -> None:
        """Open the library anew where a card was lost: a card that was reset is found only so."""
        if self._heal_at is None or self._options.clock() < self._heal_at or self._is_hung():
            return
        self._heal_after_s = min(2 * self._heal_after_s, _HEAL_AT_LAST_AFTER_S)
        self._heal_at = self._options.clock() + self._heal_after_s
        if self._library_use.acquire(timeout=2 * _EVENT_SLICE_S):
            self._reopen()
            self._library_use.release()

    def _reopen(self) -> None:
        """Initialise the library; NVML counts, so that it begins anew only after as many shut-downs."""
        self._event_set = None
        self._handles.clear()
        if self._is_open:
            self._in_control(pynvml.nvmlShutdown, "unable to shut NVML down")
        answer = self._in_control(pynvml.nvmlInit, "unable to initialize NVML")
        self._failure = answer if isinstance(answer, Failed) else None
        self._is_open = self._failure is None

    def _wait_for_event(self, slice_s: float) -> HealthEvent | None:
        with self._library_use:
            if self._closed.is_set():
                return None
            if self._event_set is None:
                self._event_set = _watch_all_cards()
            events = self._event_set
            if not isinstance(events, Failed):
                found = _ask(
                    lambda: pynvml.nvmlEventSetWait_v2(events, int(slice_s * 1000)), "failed to wait"
                )
                if not isinstance(found, Failed):
                    return _event(found)
                if found.code == "TIMEOUT":
                    return None
        self._closed.wait(slice_s)
        return None

    def _in_control(self, call: Callable[[], T], what: str) -> T | Failed:
        """Make a call that concerns no single card."""
        outcome = self._control.begin(lambda: _ask(call, what))
        try:
            return outcome.wait(time.monotonic() + self._options.timeout_s)
        except LaneTimeoutError as error:
            return Failed("TIMEOUT", f"{what}: {error}")

    def _lane(self, index: int) -> Lane:
        return self._lanes.setdefault(index, Lane(f"nvml-gpu-{index}"))

    def _is_hung(self) -> bool:
        return any(lane.is_hung for lane in (self._control, *self._lanes.values()))

    def _not_usable(self, failure: Failed) -> ProbeError:
        tried = () if self._library is None else tuple(str(each) for each in self._library.tried)
        return probe_error(failure.detail, failure.code, tried=tried)


def _name_each_once(readings: list[DeviceReading]) -> list[DeviceReading]:
    """Take a name from before off a silent card where another card answers to it: places were renumbered."""
    answering = {each.uuid for each in readings if not isinstance(each.unified, Failed)}
    return [
        msgspec.structs.replace(each, uuid=each.unified)
        if isinstance(each.unified, Failed) and each.uuid in answering
        else each
        for each in readings
    ]


def _watch_all_cards() -> object:
    """Return an event set for the Xid events of every card that has them; `Failed` where none has."""
    events = _ask(pynvml.nvmlEventSetCreate, "failed to create an event set")
    watched = 0
    for index in range(0 if isinstance(events, Failed) else pynvml.nvmlDeviceGetCount()):
        handle = _ask(partial(pynvml.nvmlDeviceGetHandleByIndex, index), "failed to get device handle")
        register = partial(
            pynvml.nvmlDeviceRegisterEvents, handle, pynvml.nvmlEventTypeXidCriticalError, events
        )
        if not isinstance(handle, Failed) and not isinstance(_ask(register, "failed to watch"), Failed):
            watched += 1
    return events if watched else Failed("FUNCTION_NOT_FOUND", "no card reports events")


def _event(found: Any) -> HealthEvent:  # noqa: ANN401 # nvidia-ml-py has no types
    uuid = Questions(found.device).uuid() if found.device else None
    number = int(found.eventData)
    return HealthEvent(uuid=uuid if isinstance(uuid, str) else None, xid=number, text=describe_xid(number))


def _ask(call: Callable[[], T], what: str) -> T | Failed:
    """Make a call without which nothing goes on: not being supported is a failure too."""
    try:
        return call()
    except pynvml.NVMLError as error:
        return failed(nvml_code(error.value), what, str(error))
