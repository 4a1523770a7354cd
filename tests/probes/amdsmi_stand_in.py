"""A stand-in for the package `amdsmi`, as far as the probe calls it. It was never compared with a real card.

Names, arguments and what they return follow the package's own source, version 7.0.2.
"""

import enum
import sys
import types
from typing import Any

import pytest


class AmdSmiException(Exception):  # noqa: N818 # the package's name
    pass


class AmdSmiLibraryException(AmdSmiException):
    def __init__(self, info: str) -> None:
        super().__init__(info)
        self.info = info

    def get_error_info(self) -> str:
        return self.info


class AmdSmiMemoryType(enum.IntEnum):
    VRAM = 0


class AmdSmiTemperatureType(enum.IntEnum):
    EDGE = 0
    HOTSPOT = 1


class AmdSmiTemperatureMetric(enum.IntEnum):
    CURRENT = 0


CARD: dict[str, Any] = {
    "amdsmi_get_gpu_device_uuid": "18ff74a1-0000-1000-80ce-76ba9b8a2c11",
    "amdsmi_get_gpu_device_bdf": "0000:0C:00.0",
    "amdsmi_get_gpu_asic_info": {"market_name": "AMD Instinct MI300X"},
    "amdsmi_get_gpu_memory_total": 206_141_652_992,
    "amdsmi_get_gpu_memory_usage": 6144 << 20,
    "amdsmi_get_gpu_activity": {"gfx_activity": 45, "umc_activity": 3, "mm_activity": "N/A"},
    "amdsmi_get_temp_metric": 51,
    "amdsmi_get_gpu_process_list": [
        {
            "name": "python",
            "pid": 4711,
            "mem": 1,
            "memory_usage": {"gtt_mem": 0, "cpu_mem": 0, "vram_mem": 6 << 30},
        }
    ],
    "amdsmi_get_gpu_total_ecc_count": {"correctable_count": 3, "uncorrectable_count": 0, "deferred_count": 0},
    "amdsmi_topo_get_numa_node_number": 1,
}


def install(patch: pytest.MonkeyPatch, *cards: dict[str, Any], init: Exception | None = None) -> None:
    """Let `import amdsmi` find a package with these cards; an answer that is an exception is raised."""
    module = types.ModuleType("amdsmi")
    for each in (AmdSmiException, AmdSmiLibraryException, AmdSmiMemoryType, AmdSmiTemperatureType):
        setattr(module, each.__name__, each)
    module.AmdSmiTemperatureMetric = AmdSmiTemperatureMetric  # type: ignore[attr-defined]

    def answer(value: Any) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    for name in CARD:
        setattr(module, name, lambda handle, *_, name=name: answer(cards[handle][name]))
    module.amdsmi_init = lambda: answer(init)  # type: ignore[attr-defined]
    module.amdsmi_shut_down = lambda: None  # type: ignore[attr-defined]
    module.amdsmi_get_processor_handles = lambda: list(range(len(cards)))  # type: ignore[attr-defined]
    patch.setitem(sys.modules, "amdsmi", module)
