"""Machines with made-up cards, read by the real nvidia-ml-py."""

import platform
import shutil
from pathlib import Path

from fakenvml import BOARDS, Card, FakeNvml
from vramline.probes.device import DeviceReading, Failed
from vramline.probes.nvidia import NvidiaProbe
from vramline.probes.options import ProbeOptions
from vramline.units import Mib

LIBRARY = Path("usr/lib", f"{platform.machine()}-linux-gnu", "libnvidia-ml.so.1")


class Machine:
    """A file system with an NVML library in the usual place, and a clock that a test moves."""

    def __init__(self, nvml: FakeNvml, root: Path) -> None:
        self.nvml = nvml
        self.root = root
        self.now = 1000.0
        (root / LIBRARY).parent.mkdir(parents=True)
        shutil.copy(nvml.library, root / LIBRARY)
        self.probe = NvidiaProbe(self.options())

    def options(self, *, timeout_s: float = 20.0) -> ProbeOptions:
        return ProbeOptions(
            root=self.root, timeout_s=timeout_s, host_reserve=Mib(1024), clock=lambda: self.now
        )

    def become(self, board: str) -> None:
        """Take over the cards and the kernel's files of a board in tests/boards."""
        self.nvml.load(board)
        if (BOARDS / board / "root").exists():
            shutil.copytree(BOARDS / board / "root", self.root, dirs_exist_ok=True)

    def open(self, *cards: Card, timeout_s: float = 20.0) -> NvidiaProbe:
        """Open a probe on these cards, or on those that are there already."""
        if cards:
            self.nvml.set(*cards)
        self.probe = NvidiaProbe(self.options(timeout_s=timeout_s))
        self.probe.open()
        return self.probe

    def read(self, *cards: Card) -> list[DeviceReading]:
        return self.open(*cards).read()

    def read_one(self, card: Card) -> DeviceReading:
        (reading,) = self.read(card)
        return reading


def failed_codes(reading: DeviceReading) -> set[str]:
    """The codes of everything in a reading that may fail; a field that did not fail counts as `answered`."""
    fields = [
        getattr(reading, name)
        for name in ("physical_id", "model", "total", "reserved", "used", "memory_source")
    ]
    fields += [
        reading.utilization_percent,
        reading.temperature_c,
        reading.processes,
        reading.numa,
        reading.mig,
    ]
    fields += [reading.health.ecc_uncorrected, reading.links, reading.unified]
    return {field.code if isinstance(field, Failed) else "answered" for field in fields}
