"""Lets a container of a real node run this machine's Python, its packages and the product from the tree."""

import platform
import sys
from pathlib import Path
from typing import Any

from realnode.image import IMAGE

__all__ = ["COMMAND", "folders_of_python", "mount_folders", "run_own_python"]

COMMAND = [sys.executable, "-m", "vramline"]
_SOURCE = Path(__file__).parents[2] / "src"


def run_own_python(spec: dict[str, Any], container: dict[str, Any], *more: Path) -> None:
    """Change a pod's container to the busybox image with Python and further folders mounted, read-only."""
    container |= {"image": IMAGE, "imagePullPolicy": "Never", "command": COMMAND}
    mount_folders(spec, container, *folders_of_python(), *more)


def mount_folders(spec: dict[str, Any], container: dict[str, Any], *folders: Path) -> None:
    """Mount folders of the machine at the same place, read-only."""
    volumes, mounts = spec.setdefault("volumes", []), container.setdefault("volumeMounts", [])
    for folder in dict.fromkeys(folders):
        name = f"machine-{len(volumes)}"
        volumes.append({"name": name, "hostPath": {"path": str(folder), "type": "Directory"}})
        mounts.append({"name": name, "mountPath": str(folder), "readOnly": True})


def folders_of_python() -> list[Path]:
    """Return what Python needs, and not all of /usr: something else may have to be mounted in there."""
    triplet = f"{platform.machine()}-linux-gnu"
    system = [Path("/usr/lib", triplet), Path("/lib", triplet), Path("/lib64")]
    base = Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    python = [base] if base != Path("/usr") else [Path("/usr/bin"), Path("/usr/lib", version)]
    return [each for each in (*system, *python, Path(sys.prefix), _SOURCE) if each.exists()]
