"""A stand-in NVML library that answers what a test wants, and changes its answers while the product runs.

    nvml = FakeNvml(tmp_path, Card("GPU-1", used=6144, processes={4711: 6144}))
    run(..., env={**os.environ, **nvml.environment()})     # and the product's nvmlLibrary = nvml.library
    nvml.set(Card("GPU-1", used=0))                        # seen by the next call

It is compiled once per machine. README.md has the format of the file behind it.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "BOARDS",
    "Card",
    "CompilerMissingError",
    "FakeNvml",
    "Slice",
    "find_or_build_library",
    "install_with_dependency",
]

LIBRARY_NAME = "libnvidia-ml.so.1"
BOARDS = Path(__file__).parent.parent / "boards"
"""One folder a board: nvml.txt is its state, `root` the files its kernel shows."""

_SOURCE = Path(__file__).with_name("fakenvml.c")
_DEPENDENCY = "int fakenvml_dependency(void) { return 42; }\n"


class CompilerMissingError(RuntimeError):
    """There is no C compiler here, so that there can be no stand-in library."""


@dataclass(frozen=True, kw_only=True)
class Slice:
    """A MIG instance of a card."""

    uuid: str
    name: str = "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    total: int = 4864
    used: int = 0
    gpu_instance: int = 7
    compute_instance: int = 0
    processes: Mapping[int, int | None] = field(default_factory=dict)

    def line(self) -> str:
        listed = [f"{pid}:{-1 if size is None else size}" for pid, size in self.processes.items()]
        name = self.name.replace(" ", "_")
        where = f"gi={self.gpu_instance} ci={self.compute_instance}"
        return " ".join([f"+{self.uuid} {name} {self.total} {self.used} 0 0 {where}", *listed])


@dataclass(frozen=True, kw_only=True)
class Card:
    """What one card answers. Memory in MiB."""

    uuid: str = field(kw_only=False)
    name: str = "NVIDIA H100 80GB HBM3"
    total: int = 81_559
    used: int | None = 0
    """None: NOT_SUPPORTED, as on boards whose memory is the host's."""
    reserved: int = 0
    utilization: int = 0
    temperature: int = 40
    processes: Mapping[int, int | None] = field(default_factory=dict)
    """MiB by process number; None: the card does not tell how much."""
    graphics: Mapping[int, int | None] = field(default_factory=dict)
    lost: bool = False
    errors: Mapping[str, int] = field(default_factory=dict)
    """Return codes by what is asked: memory, processes, temperature, …; `all` for every question."""
    hangs: Iterable[str] = ()
    """Questions that are not answered until the state says otherwise."""
    mig: bool | None = None
    slices: tuple[Slice, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    """Further words of the file: numa, memnuma, bus, cc, nvlink, pcie, ecc, total_bytes, used_bytes, …"""

    def lines(self) -> Iterable[str]:
        used = -2 if self.lost else -1 if self.used is None else self.used
        words: list[object] = [self.uuid, self.name.replace(" ", "_"), self.total, used, self.utilization, 0]
        words += [f"{pid}:{-1 if size is None else size}" for pid, size in self.processes.items()]
        words += [f"gfx={pid}:{-1 if size is None else size}" for pid, size in self.graphics.items()]
        words += [f"reserved={self.reserved}", f"temp={self.temperature}"]
        words += [f"err.{name}={code}" for name, code in self.errors.items()]
        words += [f"hang.{name}=1" for name in self.hangs]
        words += [f"mig={int(self.mig)}"] if self.mig is not None else []
        words += [f"{name}={value}" for name, value in self.options.items()]
        yield " ".join(map(str, words))
        yield from (each.line() for each in self.slices)


class FakeNvml:
    """One machine's cards, in a file of a folder of their own."""

    def __init__(self, folder: Path, *cards: Card) -> None:
        self.library = find_or_build_library()
        self.state = folder / "fakenvml.txt"
        self._events: list[str] = []
        self._body = ""
        self.set(*cards)

    def set(self, *cards: Card, **orders: object) -> None:
        """Say which cards there are from now on; orders such as init=9, down=9, delay_us=500."""
        lines = [f"!{name} {value}" for name, value in orders.items()]
        self.write("\n".join([*lines, *(line for card in cards for line in card.lines())]))

    def load(self, board: str) -> None:
        """Become one of the boards in tests/boards."""
        self.write((BOARDS / board / "nvml.txt").read_text(encoding="utf-8"))

    def write(self, text: str) -> None:
        """Put a state in the file's own format; the change is seen whole or not at all."""
        self._body = text
        self._store()

    def report_xid(self, uuid: str, xid: int) -> None:
        """Let the driver report a fault, once."""
        self._events.append(f"!event {len(self._events) + 1} {uuid} {xid}")
        self._store()

    def environment(self) -> dict[str, str]:
        """Return what a process needs to see these cards, apart from the library's path."""
        return {"FAKENVML_STATE": str(self.state)}

    def _store(self) -> None:
        new = self.state.with_suffix(".new")
        new.write_text("\n".join([*self._events, self._body, ""]), encoding="utf-8")
        new.replace(self.state)


def find_or_build_library() -> Path:
    """Return the stand-in library, from a cache outside the tree or compiled into it."""
    return _build(_SOURCE, LIBRARY_NAME)


def install_with_dependency(folder: Path, dependency: str = "libnvrm_gpu.so") -> Path:
    """Put the library into a folder, with another beside it that it needs and that no linker finds."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "dependency.c"
    source.write_text(_DEPENDENCY, encoding="utf-8")
    _compile(source, folder / dependency, f"-Wl,-soname,{dependency}")
    target = folder / LIBRARY_NAME
    _compile(
        _SOURCE,
        target,
        f"-Wl,-soname,{LIBRARY_NAME}",
        "-Wl,--no-as-needed",
        f"-L{folder}",
        f"-l:{dependency}",
    )
    source.unlink()
    return target


def _build(source: Path, name: str) -> Path:
    digest = hashlib.sha256(source.read_bytes() + os.uname().machine.encode()).hexdigest()[:16]
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = root / "vramline" / "fakenvml" / digest / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            built = Path(folder) / name
            _compile(source, built, f"-Wl,-soname,{name}")
            built.replace(target)
    return target


def _compile(source: Path, target: Path, *options: str) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise CompilerMissingError("no gcc or cc in PATH: the stand-in NVML library cannot be compiled")
    flags = ["-O2", "-Wall", "-Wextra", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", str(target), str(source), *options], check=True)
