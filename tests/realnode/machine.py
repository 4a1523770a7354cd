"""What a machine must have for a real node, and how it gets it: Debian's packages, and a kubelet.

`python -m realnode.machine` installs and builds what is missing, or says why there can be no node here.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from controlplane.commands import CommandsMissingError, find_commands, obtain_commands
from realnode.cgroups import hierarchies

__all__ = ["NodeMissingError", "Programs", "find_programs", "install_packages", "obtain_programs"]

KUBELET = ("kubelet",)
_PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
    "busybox": "busybox-static",
}
"""Package by program."""


class NodeMissingError(Exception):
    """There can be no real node on this machine, and why."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Paths of what a node runs."""

    kubelet: str
    containerd: str
    ctr: str
    busybox: Path


def find_programs() -> Programs:
    """Return what is there already; installs and builds nothing."""
    _check_machine()
    if missing := _missing_packages():
        raise NodeMissingError(
            f"no real node: Debian's {', '.join(missing)} not installed; `make controlplane` does it as root"
        )
    busybox = Path(_path_of("busybox"))
    if b"ld-linux" in busybox.read_bytes()[:4096]:
        raise NodeMissingError(f"no real node: {busybox} is not static; Debian's busybox-static is")
    try:
        kubelet = find_commands(KUBELET)["kubelet"]
    except CommandsMissingError as error:
        raise NodeMissingError(f"no real node: {error}") from error
    return Programs(kubelet, _path_of("containerd"), _path_of("ctr"), busybox)


def obtain_programs() -> Programs:
    """Return what a node runs, installing and building what is missing."""
    _check_machine()
    if missing := _missing_packages():
        install_packages(missing)
    try:
        obtain_commands(KUBELET)
    except CommandsMissingError as error:
        raise NodeMissingError(f"no real node: {error}") from error
    return find_programs()


def _check_machine() -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        raise NodeMissingError("no real node: kubelet needs Linux and root")
    if missing := [name for name in ("unshare", "nsenter", "mount") if shutil.which(name) is None]:
        raise NodeMissingError(f"no real node: {', '.join(missing)} not in the path")
    found = hierarchies()
    if not any((each / "cpuset.cpus").exists() for each in found):
        raise NodeMissingError("no real node: it was tried with cgroup v1 alone, which this machine has not")
    if locked := [str(each) for each in found if not os.access(each, os.W_OK)]:
        raise NodeMissingError(f"no real node: {', '.join(locked)} cannot be written")


def _missing_packages() -> list[str]:
    return sorted({package for name, package in _PACKAGES.items() if not _path_of(name)})


def _path_of(name: str) -> str:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin") or ""


def install_packages(packages: list[str]) -> None:
    """Install Debian's packages; only root can."""
    if shutil.which("apt-get") is None:
        raise NodeMissingError(f"no real node: {', '.join(packages)} not installed, and there is no apt-get")
    print(f"installing {', '.join(packages)} (once per machine) …", file=sys.stderr, flush=True)  # noqa: T201
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
    for step in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        result = subprocess.run(
            [*apt, *step],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            check=False,
        )
    if result.returncode != 0:
        raise NodeMissingError(f"no real node: apt-get failed: {result.stderr.strip()[-2000:]}")


if __name__ == "__main__":
    try:
        obtain_programs()
    except NodeMissingError as error:
        if os.environ.get("CONTROLPLANE_REQUIRED"):
            sys.exit(str(error))
        print(error, file=sys.stderr)  # noqa: T201
