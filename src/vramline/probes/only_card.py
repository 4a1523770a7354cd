"""The one card that a container sees, by its UUID: what a reservation pod has to know.

Its errors say which of the four questions failed, and in NVML's words why:

    unable to initialize NVML: …      the library, or the driver behind it
    unable to get device count: …     also where there is not exactly one
    unable to get device handle: …
    unable to get device uuid: …
"""

import platform
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec
import pynvml

from vramline.probes.device import Failed, ProbeError
from vramline.probes.faults import failed, nvml_code, probe_error
from vramline.probes.lane import Lane, LaneTimeoutError
from vramline.probes.library import FoundLibrary
from vramline.probes.nvml_library import load_nvml
from vramline.probes.options import ProbeOptions

__all__ = ["OnlyCard", "read_only_card"]

T = TypeVar("T")

_NONE = (
    "Look whether the node's device plugin hands cards out (`kubectl describe node`), and whether the pod"
    " runs with the NVIDIA runtime: as the node's default, or by runtimeClassName"
)
_SEVERAL = (
    "The container sees cards that kubelet did not give to it: it must not be privileged, and nothing may set"
    " NVIDIA_VISIBLE_DEVICES for it but the device plugin"
)


class OnlyCard(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to say about it."""

    uuid: str
    library: str
    """The file through which it was read, and how that was found."""


def read_only_card(options: ProbeOptions, *, counted: Callable[[int], None]) -> OnlyCard:
    """Return the card; `counted` is told how many there are. Raises `ProbeError` where it is not one.

    Every question has `options.timeout_s`; the library is shut down afterwards.
    """
    library = load_nvml(
        root=options.root,
        machine=platform.machine(),
        explicit=options.library,
        driver_roots=options.driver_roots,
    )
    lane = _AskingLane(options.timeout_s, library)
    lane.ask(pynvml.nvmlInit, "unable to initialize NVML")
    try:
        count = lane.ask(lambda: int(pynvml.nvmlDeviceGetCount()), "unable to get device count")
        counted(count)
        if count != 1:
            raise _not_one(count)
        handle = lane.ask(lambda: pynvml.nvmlDeviceGetHandleByIndex(0), "unable to get device handle")
        uuid = lane.ask(lambda: str(pynvml.nvmlDeviceGetUUID(handle)), "unable to get device uuid")
    finally:
        lane.close()
    return OnlyCard(uuid=uuid, library=f"{library.path} ({library.kind})")


class _AskingLane:
    """Questions one after the other, each with a time limit; the first that fails is the last."""

    def __init__(self, timeout_s: float, library: FoundLibrary) -> None:
        self._lane = Lane("nvml")
        self._timeout_s = timeout_s
        self._tried = tuple(str(each) for each in library.tried)

    def ask(self, question: Callable[[], T], what: str) -> T:
        """Return the answer. Raises `ProbeError`."""
        answer = self._answer(question, what)
        if isinstance(answer, Failed):
            raise probe_error(answer.detail, answer.code, tried=self._tried)
        return answer

    def close(self) -> None:
        """Shut the library down, unless a call hangs in it."""
        if not self._lane.is_hung:
            self._answer(pynvml.nvmlShutdown, "unable to shut NVML down")
        self._lane.close()

    def _answer(self, question: Callable[[], T], what: str) -> T | Failed:
        try:
            return self._lane.begin(question).wait(time.monotonic() + self._timeout_s)
        except pynvml.NVMLError as error:
            return failed(nvml_code(error.value), what, str(error))
        except LaneTimeoutError as error:
            return Failed("TIMEOUT", f"{what}: {error}")


def _not_one(count: int) -> ProbeError:
    message = (
        f"unable to get device count: {count} GPU devices are visible, and a reservation is for exactly one"
    )
    return probe_error(message, "WRONG_COUNT", advice=_SEVERAL if count else _NONE)
