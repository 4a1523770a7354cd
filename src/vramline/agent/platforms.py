"""What kind of machine this is, in one word."""

from pathlib import Path

__all__ = ["name_platform"]

_TEGRA_MARKS = ("etc/nv_tegra_release", "sys/devices/soc0/family", "proc/device-tree/compatible")
_MACHINES = {"x86_64": "x86", "aarch64": "arm64"}


def name_platform(machine: str, root: Path = Path("/")) -> str:
    """Return `x86`, `tegra`, `arm64`, or the machine's own name; `machine` is what `uname -m` says."""
    if machine == "aarch64" and any(_is_tegra(root / mark) for mark in _TEGRA_MARKS):
        return "tegra"
    return _MACHINES.get(machine, machine)


def _is_tegra(mark: Path) -> bool:
    if mark.name == "nv_tegra_release":
        return mark.exists()
    try:
        return b"tegra" in mark.read_bytes()[:4096].lower()
    except OSError:
        return False
