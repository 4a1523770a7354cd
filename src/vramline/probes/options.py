"""How cards are looked for and read."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vramline.probes.library import DRIVER_ROOTS
from vramline.units import Mib

__all__ = ["ProbeOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """The same for every vendor; each takes what concerns it."""

    library: Path | None = None
    """NVML's file, or the folder it is in; None: it is looked for."""
    root: Path = Path("/")
    """The file system of the machine."""
    driver_roots: tuple[PurePosixPath, ...] = DRIVER_ROOTS
    timeout_s: float = 2.0
    """After which a call into a driver counts as hung."""
    host_reserve: Mib = Mib(1024)
    """What a machine with unified memory keeps for itself."""
    clock: Callable[[], float] = time.monotonic
