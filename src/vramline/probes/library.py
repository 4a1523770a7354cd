"""Where on this machine is the NVML library? Found without `LD_LIBRARY_PATH`, read at process start only.

The search order:

    explicit      the file or folder that the caller names; nothing else is tried then
    linker        what the dynamic linker would load: /etc/ld.so.cache, then its built-in folders
    standard      /usr/lib/x86_64-linux-gnu or /usr/lib/aarch64-linux-gnu
    tegra         /usr/lib/aarch64-linux-gnu/nvidia and …/tegra: Jetson keeps it there, unknown to the linker
    driver root   a driver that was installed by a container, such as /run/nvidia/driver

Nothing is loaded here. A candidate must be an ELF file for this machine, so that a 32-bit twin or an
empty placeholder is passed over.
"""

import enum
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vramline.errors import TransientError

__all__ = [
    "DRIVER_ROOTS",
    "LIBRARY_NAME",
    "FoundLibrary",
    "LibraryKind",
    "NvmlLibraryNotFoundError",
    "TriedPath",
    "advise_about_library",
    "find_library",
]

LIBRARY_NAME = "libnvidia-ml.so.1"

DRIVER_ROOTS = (PurePosixPath("/run/nvidia/driver"),)
_LINKER_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_TEGRA_FOLDERS = ("/usr/lib/aarch64-linux-gnu/nvidia", "/usr/lib/aarch64-linux-gnu/tegra")
_ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_MAX_LINKS = 8


class LibraryKind(enum.StrEnum):
    """Which kind of place a library was found in."""

    EXPLICIT = "explicit"
    LINKER = "linker"
    STANDARD = "standard"
    TEGRA = "tegra"
    DRIVER_ROOT = "driver root"


@dataclass(frozen=True, slots=True)
class TriedPath:
    """A candidate, and why it was passed over; an empty reason: it was taken."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path} ({self.reason or 'used'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLibrary:
    """The file to load, and how it was found."""

    path: Path
    kind: LibraryKind
    tried: tuple[TriedPath, ...]
    """Every candidate looked at, in order; the last one is `path`."""


class NvmlLibraryNotFoundError(TransientError):
    """There is no NVML library here, or not yet: a driver container may still be installing it."""

    def __init__(self, *, machine: str, tried: tuple[TriedPath, ...]) -> None:
        self.machine = machine
        self.tried = tried
        super().__init__(
            f"NVML is not usable: {LIBRARY_NAME} for {machine} was not found;"
            f" tried {', '.join(map(str, tried))}. {advise_about_library(machine)}",
            retry_after_s=30.0,
        )


def find_library(
    *,
    root: Path,
    machine: str,
    explicit: Path | None = None,
    driver_roots: tuple[PurePosixPath, ...] = DRIVER_ROOTS,
) -> FoundLibrary:
    """Return the NVML library for `machine` (as `platform.machine()` says) in the file system at `root`.

    All paths, `explicit` too, are meant inside `root`; a symbolic link is followed inside it. Raises
    `NvmlLibraryNotFoundError` with every path tried.
    """
    machine = "aarch64" if machine == "arm64" else machine
    tried: list[TriedPath] = []
    for kind, inside in _candidates(root, machine, explicit, driver_roots):
        path = _follow(root, inside)
        if any(earlier.path == path for earlier in tried):
            continue
        reason = _objection(path, machine)
        tried.append(TriedPath(path, reason))
        if not reason:
            return FoundLibrary(path=path, kind=kind, tried=tuple(tried))
    raise NvmlLibraryNotFoundError(machine=machine, tried=tuple(tried))


def _candidates(
    root: Path, machine: str, explicit: Path | None, driver_roots: tuple[PurePosixPath, ...]
) -> Iterator[tuple[LibraryKind, PurePosixPath]]:
    """Yield paths inside `root`, best first."""
    if explicit is not None:
        named = PurePosixPath(explicit)
        is_folder = _below(root, named).is_dir()
        yield LibraryKind.EXPLICIT, named / LIBRARY_NAME if is_folder else named
        return
    triplet = f"{machine}-linux-gnu"
    for path in _known_to_linker(root):
        yield LibraryKind.LINKER, path
    for folder in _LINKER_FOLDERS:
        yield LibraryKind.LINKER, PurePosixPath(folder, LIBRARY_NAME)
    yield LibraryKind.STANDARD, PurePosixPath("/usr/lib", triplet, LIBRARY_NAME)
    for folder in _TEGRA_FOLDERS if machine == "aarch64" else ():
        yield LibraryKind.TEGRA, PurePosixPath(folder, LIBRARY_NAME)
    for driver in driver_roots:
        for folder in (f"usr/lib/{triplet}", "usr/lib64", "usr/lib"):
            yield LibraryKind.DRIVER_ROOT, driver / folder / LIBRARY_NAME


def _known_to_linker(root: Path) -> list[PurePosixPath]:
    """Return where the linker's cache says the library is; nothing where there is no readable cache.

    The cache is an array of (flags, name, path, …) whose texts are offsets from the header. Older systems
    put another table before it; the header is found by its magic word.
    """
    try:
        content = _below(root, PurePosixPath("/etc/ld.so.cache")).read_bytes()
        content = content[content.index(_CACHE_MAGIC) :]
        (count,) = struct.unpack_from("<I", content, len(_CACHE_MAGIC))
        entries = [struct.unpack_from("<iII", content, 48 + 24 * index) for index in range(count)]
        return [
            PurePosixPath(_text_at(content, value))
            for _, name, value in entries
            if _text_at(content, name) == LIBRARY_NAME
        ]
    except (OSError, ValueError, struct.error):
        return []


def _text_at(content: bytes, offset: int) -> str:
    return os.fsdecode(content[offset : content.index(b"\0", offset)])


def _follow(root: Path, inside: PurePosixPath) -> Path:
    """Return the file that `inside` leads to; an absolute link target starts at `root` again."""
    for _ in range(_MAX_LINKS):
        path = _below(root, inside)
        try:
            inside = inside.parent / path.readlink()
        except OSError:
            break
    return _below(root, inside)


def _below(root: Path, inside: PurePosixPath) -> Path:
    return root / inside.relative_to("/") if inside.is_absolute() else root / inside


def _objection(path: Path, machine: str) -> str:
    """Say why a file cannot be the library; empty: it can."""
    try:
        with path.open("rb") as file:
            header = file.read(64)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return "not there"
    except OSError as failure:
        return (failure.strerror or "unreadable").lower()
    if not header.startswith(b"\x7fELF") or len(header) < 20:
        return "not a library"
    wanted = _ELF_MACHINES.get(machine)
    if wanted not in {None, int.from_bytes(header[18:20], "little")}:
        return "for another machine"
    return "cut off" if _needed_size(header) > size else ""


def _needed_size(header: bytes) -> int:
    """Return where a 64-bit file ends, by its last table. Loading a shorter one would kill the process."""
    if len(header) < 64:
        return 0
    (offset,) = struct.unpack_from("<Q", header, 40)
    entry_size, count = struct.unpack_from("<HH", header, 58)
    return int(offset + entry_size * count)


def advise_about_library(machine: str) -> str:
    """Say what to do about it."""
    if machine == "aarch64":
        return (
            "On a Jetson the file is in /usr/lib/aarch64-linux-gnu/nvidia of the host: mount that folder"
            " read-only at the same path (LD_LIBRARY_PATH is not needed). Elsewhere install the NVIDIA driver"
            " or run the container with the NVIDIA runtime and NVIDIA_DRIVER_CAPABILITIES=utility"
        )
    return (
        "Install the NVIDIA driver on the node, or run the container with the NVIDIA runtime and"
        " NVIDIA_DRIVER_CAPABILITIES=utility"
    )
