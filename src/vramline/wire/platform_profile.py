"""What a reservation pod needs on a kind of machine besides the device itself."""

import msgspec

__all__ = ["TEGRA", "HostMount", "PlatformProfile"]

TEGRA = "tegra"
"""Jetson's boards: Orin, Thor and their forerunners."""


class HostMount(msgspec.Struct, frozen=True, kw_only=True):
    """A folder or file of the host inside the container."""

    host_path: str
    path: str
    read_only: bool = True
    kind: str = "Directory"
    """As Kubernetes checks it, so that what is not there is an error and not an empty folder."""


class PlatformProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What a kind of machine needs besides the device itself; empty where the runtime provides all."""

    env: dict[str, str] = {}
    mounts: tuple[HostMount, ...] = ()
    devices: tuple[str, ...] = ()
    """Device nodes of the host, by path; each appears under the same path."""
    runtime_class: str = ""
    """Empty: the node's default runtime."""
    groups: tuple[int, ...] = ()
    """Groups that may open the device nodes."""
    annotations: dict[str, str] = {}
    """For the pod: how some runtimes are told which device nodes a container may open."""
    privileged: bool = False
    """The last resort, and only by an operator's word."""
