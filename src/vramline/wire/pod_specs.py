"""What a pod's spec means, apart from its ask and where the pod is.

Pods come by the hundred from one template. Their specs differ in names alone, so what follows from the rest
is worked out once and shared.
"""

from functools import lru_cache

import msgspec

from vramline.errors import RequestError
from vramline.model.pod import HostNeeds
from vramline.wire import keys
from vramline.wire.host_needs import read_host_needs
from vramline.wire.kubernetes import (
    Affinity,
    Container,
    ContainerPort,
    PodSpec,
    PodToleration,
    Quantities,
    ResourceNeeds,
    Volume,
)
from vramline.wire.notes import list_unsimulated
from vramline.wire.stages import list_containers

__all__ = ["SpecReading", "read_spec"]


class SpecReading(msgspec.Struct, frozen=True):
    """What follows from a spec."""

    host: HostNeeds
    device_containers: tuple[bool, ...]
    """For each container, init containers first, whether it asks kubelet for GPU devices."""
    unsimulated: tuple[str, ...]
    """What kube-scheduler alone judges of it."""


class _Template(msgspec.Struct, frozen=True, array_like=True):
    """What of a spec anything follows from."""

    init_containers: list[Container]
    containers: list[Container]
    resources: ResourceNeeds | None
    overhead: Quantities | None
    node_selector: dict[str, str] | None
    affinity: Affinity | None
    tolerations: list[PodToleration] | None
    is_spread: bool
    is_gated: bool
    has_claims: bool
    has_volumes: bool


_READ = msgspec.msgpack.Decoder(_Template)
_WRITE = msgspec.msgpack.Encoder().encode


def read_spec(spec: PodSpec, subject: str) -> SpecReading:
    """Read a spec; raises `RequestError` with the first thing that is wrong with it."""
    template = _Template(
        [_nameless(each) for each in spec.init_containers or ()],
        [_nameless(each) for each in spec.containers or ()],
        spec.resources,
        spec.overhead,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        bool(spec.topology_spread_constraints),
        bool(spec.scheduling_gates),
        bool(spec.resource_claims),
        any(each.persistent_volume_claim or each.ephemeral for each in spec.volumes or ()),
    )
    try:
        return _read_known(_WRITE(template))
    except (RequestError, msgspec.MsgspecError, OverflowError):
        return _read(spec, subject)  # to say whose it is


@lru_cache(maxsize=1024)
def _read_known(written: bytes) -> SpecReading:
    template = _READ.decode(written)
    spec = PodSpec(
        init_containers=template.init_containers,
        containers=template.containers,
        resources=template.resources,
        overhead=template.overhead,
        node_selector=template.node_selector,
        affinity=template.affinity,
        tolerations=template.tolerations,
        topology_spread_constraints=[...] if template.is_spread else None,
        scheduling_gates=[...] if template.is_gated else None,
        resource_claims=[...] if template.has_claims else None,
        volumes=[Volume(ephemeral={"": ""})] if template.has_volumes else None,
    )
    return _read(spec, "")


def _nameless(container: Container) -> Container:
    binds_port = any(port.host_port for port in container.ports) if container.ports else False
    return Container(
        resources=container.resources,
        restart_policy=container.restart_policy,
        ports=[ContainerPort(host_port=1)] if binds_port else None,
    )


def _read(spec: PodSpec, subject: str) -> SpecReading:
    return SpecReading(
        host=read_host_needs(spec, subject),
        device_containers=tuple(map(_asks_for_devices, list_containers(spec))),
        unsimulated=tuple(list_unsimulated(spec)),
    )


def _asks_for_devices(container: Container) -> bool:
    needs = container.resources
    return needs is not None and any(
        resource in (amounts or {})
        for amounts in (needs.limits, needs.requests)
        for resource in (keys.GPU_COUNT, keys.GPU_COUNT_SHARED)
    )
