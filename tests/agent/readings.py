"""Readings as a probe returns them."""

from typing import Any

from vramline.probes.device import DeviceReading, Failed, MemorySource, ProcessReading
from vramline.units import Mib

LOST = Failed("GPU_IS_LOST", "fell off the bus")


def reading(uuid: str = "GPU-a", **fields: Any) -> DeviceReading:
    """A healthy card that answers everything."""
    return DeviceReading(
        **{
            "uuid": uuid,
            "index": 0,
            "vendor": "nvidia",
            "model": "NVIDIA H100",
            "total": Mib(81_559),
            "reserved": Mib(550),
            "used": Mib(6_144),
            "memory_source": MemorySource.NVML,
            "utilization_percent": 45,
            "temperature_c": 51,
            "processes": (ProcessReading(pid=7, used=Mib(6_144)),),
            "numa": 1,
            "mig_enabled": False,
            **fields,
        }
    )
