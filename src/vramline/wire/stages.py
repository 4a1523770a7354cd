"""Which containers of a pod run at the same time.

Init containers run one after another, before the main ones; a sidecar (an init container that restarts
always) stays from its start on. So a pod needs the largest of:

    for each plain init container:  it + the sidecars started before it
    at last:                        all sidecars + all main containers
"""

from collections.abc import Iterable
from typing import TypeVar

from vramline.wire.kubernetes import Container, PodSpec

__all__ = ["list_containers", "list_stages"]

T = TypeVar("T")


def list_containers(spec: PodSpec) -> list[Container]:
    """Return all containers, init containers first."""
    return [*(spec.init_containers or ()), *(spec.containers or ())]


def list_stages(spec: PodSpec, wants: Iterable[T]) -> list[list[T]]:
    """Group `wants`, one per container in the order of `list_containers`, by what runs together.

    >>> spec = PodSpec(init_containers=[Container(name="fetch")], containers=[Container(name="main")])
    >>> list_stages(spec, ["a", "b"])
    [['a'], ['b']]
    """
    remaining = iter(wants)
    stages: list[list[T]] = []
    staying: list[T] = []
    for container, want in zip(spec.init_containers or (), remaining, strict=False):
        if container.is_sidecar:
            staying.append(want)
        else:
            stages.append([*staying, want])
    return [*stages, [*staying, *remaining]]
