"""What reservation pods need on a kind of machine beyond the device itself: the setting `platforms`.

Without it there is one profile that is not empty, Tegra's. What an operator says of a platform replaces those
parts that are named; the rest stays as it is here.
"""

import re

import msgspec

from vramline.wire.platform_profile import TEGRA, HostMount, PlatformProfile

__all__ = ["DEFAULT_PROFILES", "as_platforms", "list_runtime_classes", "profile_for"]

_NAME = re.compile(r"[a-z0-9]([a-z0-9_.-]{0,61}[a-z0-9])?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PATH = re.compile(r"/[!-9;-~]*", re.ASCII)
_DEVICES = HostMount(host_path="/dev", path="/dev", read_only=False)
_VIDEO = 44
"""The group that may open a board's device nodes, as Debian and JetPack number it."""

_TEGRA_LIBRARIES = "/usr/lib/aarch64-linux-gnu/nvidia"

DEFAULT_PROFILES: dict[str, PlatformProfile] = {
    TEGRA: PlatformProfile(
        env={"NVIDIA_DRIVER_CAPABILITIES": "utility"},
        mounts=(HostMount(host_path=_TEGRA_LIBRARIES, path=_TEGRA_LIBRARIES),),
        groups=(_VIDEO,),
    )
}


class _Said(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What an operator says of one platform; absent: nothing."""

    libraries: list[str] | None = None
    """Folders of the host, each mounted read-only; `HOST:CONTAINER` where they differ."""
    environment: dict[str, str] | None = None
    runtime_class: str | None = None
    devices: list[str] | None = None
    groups: list[int] | None = None
    annotations: dict[str, str] | None = None
    privileged: bool | None = None


def as_platforms(raw: object) -> str:
    """Read profiles by platform, from a mapping or its JSON, and keep them as JSON; empty is none."""
    if raw in ("", None):
        return ""
    try:
        document = msgspec.json.decode(raw) if isinstance(raw, str) else raw
        said = msgspec.convert(document, dict[str, _Said])
    except msgspec.MsgspecError as error:
        raise ValueError(f"cannot be read: {error}") from None
    for name, each in said.items():
        _check(name, each)
    return msgspec.json.encode(document, order="deterministic").decode()


def profile_for(platform: str, platforms: str) -> PlatformProfile:
    """Return the profile of a platform, given the setting.

    >>> profile_for("x86", "") == PlatformProfile()
    True
    >>> profile_for("x86", '{"x86": {"runtimeClass": "nvidia"}}').runtime_class
    'nvidia'
    """
    default = DEFAULT_PROFILES.get(platform, PlatformProfile())
    said = msgspec.json.decode(platforms, type=dict[str, _Said]) if platforms else {}
    return _merge(default, said[platform]) if platform in said else default


def list_runtime_classes(platforms: str) -> dict[str, str]:
    """Return every RuntimeClass that the setting names, and where.

    >>> list_runtime_classes('{"x86": {"runtimeClass": "nvidia"}}')
    {'nvidia': 'platforms.x86.runtimeClass'}
    """
    said = msgspec.json.decode(platforms, type=dict[str, _Said]) if platforms else {}
    return {
        each.runtime_class: f"platforms.{name}.runtimeClass"
        for name, each in said.items()
        if each.runtime_class
    }


def _merge(profile: PlatformProfile, said: _Said) -> PlatformProfile:
    changes: dict[str, object] = {}
    if said.libraries is not None:
        changes["mounts"] = tuple(_mount(each) for each in said.libraries)
    if said.environment is not None:
        changes["env"] = said.environment
    if said.runtime_class is not None:
        changes["runtime_class"] = said.runtime_class
    if said.devices is not None:
        changes["devices"] = tuple(said.devices)
    if said.groups is not None:
        changes["groups"] = tuple(said.groups)
    if said.annotations is not None:
        changes["annotations"] = said.annotations
    merged = msgspec.structs.replace(profile, **changes)
    if not said.privileged:
        return merged
    return msgspec.structs.replace(
        merged, privileged=True, mounts=(*merged.mounts, _DEVICES), devices=(), groups=()
    )


def _mount(text: str) -> HostMount:
    host, _, inside = text.partition(":")
    return HostMount(host_path=host, path=inside or host)


def _check(name: str, said: _Said) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"names {name!r}, which is no platform")
    for folder in said.libraries or ():
        if not all(_PATH.fullmatch(part) for part in folder.split(":", 1)):
            raise ValueError(f"{name}: libraries has {folder!r}, which is no absolute path")
    for device in said.devices or ():
        if not device.startswith("/dev/") or not _PATH.fullmatch(device):
            raise ValueError(f"{name}: devices has {device!r}, which is no path in /dev")
    for variable in said.environment or ():
        if not _VARIABLE.fullmatch(variable) or variable.startswith("POD_"):
            raise ValueError(f"{name}: environment has {variable!r}, which cannot be set")
    if said.runtime_class and not _NAME.fullmatch(said.runtime_class):
        raise ValueError(f"{name}: runtimeClass is {said.runtime_class!r}, which is no name")
    if any(group < 1 for group in said.groups or ()):
        raise ValueError(f"{name}: groups has a number below 1")
