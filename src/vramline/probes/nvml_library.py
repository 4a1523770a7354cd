"""Loads the NVML library from wherever it is, with what it needs from the same folder, for nvidia-ml-py.

nvidia-ml-py loads `libnvidia-ml.so.1` by name only. Given a library already loaded it takes that one; what
lies beside it and is unknown to the linker is loaded first, so that no LD_LIBRARY_PATH is needed.
"""

import ctypes
import re
from pathlib import Path, PurePosixPath

import pynvml

from vramline.probes.faults import probe_error
from vramline.probes.library import (
    LIBRARY_NAME,
    FoundLibrary,
    NvmlLibraryNotFoundError,
    advise_about_library,
    find_library,
)

__all__ = ["load_nvml"]

_MISSING = re.compile(r"^(?P<name>[^/:\s]+): cannot open shared object file")
_MAX_DEPENDENCIES = 64
_MESSAGE = "unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND"


def load_nvml(
    *, root: Path, machine: str, explicit: Path | None, driver_roots: tuple[PurePosixPath, ...]
) -> FoundLibrary:
    """Find and load the library, and let nvidia-ml-py use it. Raises `ProbeError` with every path tried."""
    try:
        found = find_library(root=root, machine=machine, explicit=explicit, driver_roots=driver_roots)
    except NvmlLibraryNotFoundError as error:
        raise _not_usable(machine, [str(each) for each in error.tried]) from error
    tried = [str(each) for each in found.tried[:-1]]
    try:
        library = _load_with_neighbours(found.path, ())
    except OSError as error:
        raise _not_usable(machine, [*tried, f"{found.path} ({error})"]) from error
    pynvml.nvmlLib = library
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 # else it goes on calling the one before
    return found


def _load_with_neighbours(path: Path, for_whom: tuple[str, ...]) -> ctypes.CDLL:
    """Load a library; whatever it lacks is looked for beside it, and loaded so that it is found."""
    mode = ctypes.RTLD_GLOBAL if for_whom else ctypes.RTLD_LOCAL
    for _ in range(_MAX_DEPENDENCIES):
        try:
            return ctypes.CDLL(str(path), mode=mode)
        except OSError as error:
            missing = _MISSING.match(str(error))
            beside = path.parent / missing["name"] if missing else None
            if beside is None or not beside.exists() or beside.name in for_whom:
                raise
            _load_with_neighbours(beside, (*for_whom, path.name))
    raise OSError(f"{path} needs more than {_MAX_DEPENDENCIES} libraries beside it")


def _not_usable(machine: str, tried: list[str]) -> Exception:
    return probe_error(
        f"{_MESSAGE} ({LIBRARY_NAME} for {machine})",
        "LIBRARY_NOT_FOUND",
        tried=tuple(tried),
        advice=advise_about_library(machine),
    )
