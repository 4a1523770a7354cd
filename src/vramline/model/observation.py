"""What the card said, and what it did not say.

A field the card did not answer is `Unknown`. `Unknown` is neither zero nor false: it refuses to be
used as a truth value or a number, so forgetting to ask `isinstance(x, Unknown)` is an error at once.
"""

import enum
import math
from typing import NoReturn

import msgspec

from vramline.units import Mib

__all__ = ["NOT_REPORTED", "GpuProcess", "Observation", "ObservationSource", "Unknown"]


class Unknown(msgspec.Struct, frozen=True):
    """A value nobody could tell, and why."""

    why: str

    def __bool__(self) -> NoReturn:
        raise TypeError(f"an unknown value ({self.why}) is neither true nor false")


NOT_REPORTED = Unknown("not reported")


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process that holds memory on a card."""

    pid: int
    used: Mib | Unknown = NOT_REPORTED
    pod_uid: str | Unknown | None = NOT_REPORTED
    """The pod it belongs to; None: it belongs to no pod; Unknown: nobody found out."""


class ObservationSource(enum.StrEnum):
    """Who looked at a card, or who tells what somebody saw there."""

    REPORT = "GpuReport"
    STREAM = "agent's stream"
    LOOK = "live look"
    DCGM = "DCGM exporter"
    PROMETHEUS = "Prometheus"
    HAMI = "HAMi vGPUmonitor"
    POD = "nvidia-smi in a pod"
    MACHINE = "this machine's driver"


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one physical GPU."""

    at: float
    """When, in seconds since the epoch."""
    used: Mib | Unknown = NOT_REPORTED
    """Memory in use, without what the driver keeps for itself."""
    processes: tuple[GpuProcess, ...] | Unknown = NOT_REPORTED
    utilization_percent: int | Unknown = NOT_REPORTED
    temperature_c: int | Unknown = NOT_REPORTED
    source: ObservationSource = ObservationSource.REPORT
    void_at: float = math.inf
    """From when on it counts for nothing, whatever age the rules allow: a stream that pauses is broken."""
