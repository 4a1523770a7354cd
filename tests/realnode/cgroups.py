"""A root in every cgroup hierarchy of the machine, for one node, and its removal with all that is below."""

import contextlib
import time
from pathlib import Path

__all__ = ["hierarchies", "make_roots", "remove_roots"]

_REMOVAL_SECONDS = 10.0


def hierarchies() -> list[Path]:
    """Return where cgroup v1 controllers are mounted, and the empty v2 hierarchy beside them."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(each[1]) for each in mounts if each[2] in {"cgroup", "cgroup2"}]


def make_roots(name: str) -> None:
    """Make the root; a cpuset without processors and memory would accept no process."""
    remove_roots(name)
    for hierarchy in hierarchies():
        root = hierarchy / name
        root.mkdir()
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (root / file).exists() and (hierarchy / file).exists():
                (root / file).write_text((hierarchy / file).read_text())


def remove_roots(name: str) -> None:
    """Remove the root and everything below it, as soon as the last process in it has ended."""
    deadline = time.monotonic() + _REMOVAL_SECONDS
    while left := [each for hierarchy in hierarchies() for each in _deepest_first(hierarchy / name)]:
        for each in left:
            with contextlib.suppress(OSError):  # a process that was killed may need a moment more
                each.rmdir()
        if time.monotonic() > deadline:
            raise TimeoutError(f"cgroups could not be removed: {', '.join(map(str, left))}")
        time.sleep(0.01)


def _deepest_first(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    below = [each for each in root.rglob("*") if each.is_dir()]
    return [*sorted(below, key=lambda each: len(each.parts), reverse=True), root]
