"""Boards whose GPU has no memory of its own: Orin, Thor, GB10.

CPU and GPU take from one pool, the machine's memory, so the pool is what counts:

    total     MemTotal
    reserved  what is kept for the host, a setting
    used      MemTotal − MemAvailable, whoever took it; page cache is not in use
    free      total − reserved − used = MemAvailable − reserved

How much of `used` the GPU holds comes from the first that answers: the processes that NVML lists (Thor,
GB10), the clients of nvmap in debugfs, NvMapMemUsed in /proc/meminfo (Orin). No answer is not 0.
"""

import re
from pathlib import Path
from typing import NamedTuple

from vramline.probes.amounts import (
    believe_percent,
    believe_pid,
    believe_temperature,
    believe_total,
    believe_used,
)
from vramline.probes.device import (
    Answer,
    Failed,
    MemorySource,
    ProcessReading,
    Unsupported,
)
from vramline.units import Mib

__all__ = [
    "GpuPart",
    "Pool",
    "read_gpu_part",
    "read_load",
    "read_pool",
    "read_temperature",
    "sees_all_processes",
]

_MEMINFO_LINE = re.compile(r"^(?P<key>\w+):\s+(?P<kib>\d{1,19}) kB$", re.ASCII | re.MULTILINE)
_CLIENT_LINE = re.compile(r"^\s*\S.*?\s(?P<pid>\d{1,10})\s+(?P<kib>\d{1,19})K\s*$", re.ASCII)
_LOAD_FILES = (
    "sys/devices/platform/gpu.0/load",
    "sys/devices/gpu.0/load",
    "sys/devices/platform/bus@0/17000000.gpu/load",
    "sys/devices/platform/17000000.gpu/load",
)
_HOST_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel gives the first PID namespace this number, always."""


class Pool(NamedTuple):
    """The memory of the machine."""

    total: Answer[Mib]
    reserved: Answer[Mib]
    used: Answer[Mib]


class GpuPart(NamedTuple):
    """What of the pool the GPU holds, and for whom."""

    used: Answer[Mib]
    source: Answer[MemorySource]
    processes: Answer[tuple[ProcessReading, ...]]


def read_pool(root: Path, host_reserve: Mib) -> Pool:
    """Return the state of the pool; `host_reserve` is never handed out."""
    figures = _read_meminfo(root)
    if isinstance(figures, Failed):
        return Pool(figures, figures, figures)
    if not {"MemTotal", "MemAvailable"} <= figures.keys():
        missing = Failed("UNREADABLE", "/proc/meminfo has no MemTotal or no MemAvailable")
        return Pool(missing, missing, missing)
    total = believe_total(figures["MemTotal"])
    if isinstance(total, int) and host_reserve >= total:
        too_much = Failed("NONSENSE", f"a reserve of {host_reserve} MiB for the host, which has {total} MiB")
        return Pool(total, too_much, too_much)
    return Pool(total, host_reserve, believe_used(figures["MemTotal"] - figures["MemAvailable"], total))


def read_gpu_part(root: Path, listed: Answer[tuple[ProcessReading, ...]], *, total: Answer[Mib]) -> GpuPart:
    """Return what the GPU holds, given what NVML lists."""
    if isinstance(listed, tuple) and (listed or sees_all_processes(root)):
        held = _sum(listed, total)
        if isinstance(held, int):
            return GpuPart(held, MemorySource.NVML_PROCESSES, listed)
    clients = _read_clients(root, total)
    if isinstance(clients, tuple):
        return GpuPart(_sum(clients, total), MemorySource.NVMAP, clients)
    figures = _read_meminfo(root)
    if not isinstance(figures, Failed) and "NvMapMemUsed" in figures:
        return GpuPart(believe_used(figures["NvMapMemUsed"], total), MemorySource.NVMAP, listed)
    why = Unsupported("neither NVML nor nvmap tells what the GPU holds")
    return GpuPart(why, why, listed)


def read_load(root: Path) -> Answer[int]:
    """Return the utilisation that nvgpu shows in sysfs, where it is in tenths of a percent."""
    for name in _LOAD_FILES:
        text = _read_text(root / name)
        if text is not None and text.strip().isdecimal():
            return believe_percent(round(int(text) / 10))
    return Unsupported("no load file of nvgpu")


def read_temperature(root: Path) -> Answer[int]:
    """Return the temperature of the GPU's thermal zone."""
    for zone in sorted((root / "sys/class/thermal").glob("thermal_zone*")):
        kind, value = _read_text(zone / "type"), _read_text(zone / "temp")
        if kind and value and kind.strip().lower().startswith("gpu") and value.strip().isdecimal():
            return believe_temperature(round(int(value) / 1000))
    return Unsupported("no thermal zone of the GPU")


def sees_all_processes(root: Path) -> bool:
    """Whether we are in the host's PID namespace: elsewhere the driver hides what is outside."""
    try:
        return str((root / "proc/self/ns/pid").readlink()) == _HOST_PID_NAMESPACE
    except OSError:
        return False


def _sum(processes: tuple[ProcessReading, ...], total: Answer[Mib]) -> Answer[Mib]:
    """Return what processes hold together; one that is not known makes the sum unknown."""
    sizes = [each.used for each in processes if isinstance(each.used, int)]
    unknown = [each.used for each in processes if not isinstance(each.used, int)]
    return unknown[0] if unknown else believe_used(sum(sizes) << 20, total)


def _read_meminfo(root: Path) -> dict[str, int] | Failed:
    """Return the figures of /proc/meminfo in bytes."""
    text = _read_text(root / "proc/meminfo")
    if text is None:
        return Failed("UNREADABLE", "/proc/meminfo could not be read")
    return {found["key"]: int(found["kib"]) * 1024 for found in _MEMINFO_LINE.finditer(text)}


def _read_clients(root: Path, total: Answer[Mib]) -> Answer[tuple[ProcessReading, ...]]:
    """Return nvmap's clients; a process may be there several times, each with a part of its memory."""
    text = _read_text(root / "sys/kernel/debug/nvmap/iovmm/clients")
    if text is None:
        return Unsupported("nvmap's clients are not readable")
    held: dict[int, int] = {}
    for line in text.splitlines():
        found = _CLIENT_LINE.match(line)
        if found and isinstance(believe_pid(int(found["pid"])), int):
            held[int(found["pid"])] = held.get(int(found["pid"]), 0) + int(found["kib"]) * 1024
    return tuple(
        ProcessReading(pid=pid, used=believe_used(amount, total)) for pid, amount in sorted(held.items())
    )


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
