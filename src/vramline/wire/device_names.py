"""What a container's runtime is told: cards by UUID, or by the names of the Container Device Interface."""

import re
from collections.abc import Iterable

__all__ = ["BY_UUID", "is_device_naming", "name_devices"]

BY_UUID = "uuid"
_KIND = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", re.ASCII
)


def is_device_naming(text: str) -> bool:
    """Whether it is `uuid` or a CDI kind, `vendor/class`."""
    return text == BY_UUID or _KIND.fullmatch(text) is not None


def name_devices(uuids: Iterable[str], naming: str) -> str:
    """Return the list for `NVIDIA_VISIBLE_DEVICES`.

    >>> name_devices(["GPU-1", "GPU-2"], "uuid")
    'GPU-1,GPU-2'
    >>> name_devices(["GPU-1", "GPU-2"], "nvidia.example/gpu")
    'nvidia.example/gpu=GPU-1,nvidia.example/gpu=GPU-2'
    """
    return ",".join(uuids if naming == BY_UUID else (f"{naming}={uuid}" for uuid in uuids))
