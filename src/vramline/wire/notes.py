"""What a manifest says that Vramline does not act on: named, so that nothing is ignored in silence."""

from collections.abc import Iterable, Iterator

from vramline.wire import keys
from vramline.wire.asks import find_mig_resource, is_reservation_pod
from vramline.wire.identity import subject_of
from vramline.wire.kubernetes import Affinity, PodObject, PodSpec
from vramline.wire.stages import list_containers

__all__ = ["list_annotation_notes", "list_notes", "list_unsimulated"]

_ACTED_ON = {
    "cpu",
    "memory",
    keys.MANAGED,
    keys.SLOT,
    keys.GPU_COUNT,
    keys.GPU_COUNT_SHARED,
    keys.GPU_MEMORY_MIB,
    keys.GPU_MEMORY_PERCENT,
    keys.GPU_CORES,
    keys.GPU_PRIORITY,
}
_OURS = f"{keys.GROUP}/"
_KNOWN = {
    keys.VRAM,
    keys.GPUS,
    keys.REALTIME_CHECK,
    keys.ASK,
    keys.ALLOCATION,
    keys.VISIBLE_DEVICES,
    keys.RESERVED_GPU,
    keys.RESERVES,
}
_CHOICES = (
    keys.HAMI_USE_TYPE,
    keys.HAMI_NOUSE_TYPE,
    keys.HAMI_USE_UUID,
    keys.HAMI_NOUSE_UUID,
    keys.HAMI_NUMA_BIND,
    keys.HAMI_NODE_POLICY,
    keys.HAMI_GPU_POLICY,
    keys.HAMI_ENABLE_REALTIME,
    keys.REALTIME_CHECK,
)
_NOT_FOLLOWED = (keys.HAMI_VGPU_MODE, keys.HAMI_SCORING_WEIGHTS)


def list_notes(pod: PodObject, *, asks: bool, unsimulated: Iterable[str]) -> tuple[str, ...]:
    """Return one sentence for each thing in the manifest that placement leaves out."""
    spec = pod.spec or PodSpec()
    notes: list[str] = []
    if not is_reservation_pod(pod.metadata):
        notes += list_annotation_notes(pod, asks=asks)
        mig = None if asks else find_mig_resource(spec, subject_of(pod.metadata))
        if mig is not None:
            notes.append(f"{mig} is left to the NVIDIA device plugin and not simulated")
    notes += [f"{what} not simulated" for what in unsimulated]
    if not spec.node_name and pod.metadata.deletion_timestamp is not None:
        notes.append("deletion was asked for before the pod was placed, so it is not placed any more")
    return tuple(notes)


def list_annotation_notes(pod: PodObject, *, asks: bool) -> Iterator[str]:
    """Yield one sentence for each annotation that has no effect."""
    annotations = pod.metadata.annotations
    if not annotations:
        return
    for key in annotations:
        if key.startswith(_OURS) and key not in _KNOWN:
            yield f"annotation {key} is not known and has no effect"
    for key in _NOT_FOLLOWED if asks else _CHOICES:
        if key in annotations:
            why = "is not acted on" if asks else "has no effect, because the pod asks for no GPU"
            yield f"annotation {key} {why}"


def list_unsimulated(spec: PodSpec) -> Iterator[str]:
    """Yield why a pod may not or should not go just anywhere, for reasons that only kube-scheduler judges."""
    if spec.affinity is not None:
        yield from _about_affinity(spec.affinity)
    if spec.topology_spread_constraints:
        yield "topologySpreadConstraints are"
    if spec.scheduling_gates:
        yield "schedulingGates are"
    if spec.resource_claims:
        yield "resourceClaims (dynamic resource allocation) are"
    if any(volume.persistent_volume_claim or volume.ephemeral for volume in spec.volumes or ()):
        yield "persistent volumes are"
    if any(port.host_port for container in spec.containers or () for port in container.ports or ()):
        yield "host ports are"
    for name in _other_resources(spec):
        yield f"resource {name} is"


def _about_affinity(affinity: Affinity) -> Iterator[str]:
    node = affinity.node_affinity
    required = node.required_during_scheduling_ignored_during_execution if node else None
    if node and node.preferred_during_scheduling_ignored_during_execution:
        yield "preferred node affinity is"
    for term in (required.node_selector_terms or ()) if required else ():
        if any(each.operator != "In" for each in term.match_fields or ()):
            yield "node affinity by matchFields other than In is"
    if affinity.pod_affinity:
        yield "podAffinity is"
    if affinity.pod_anti_affinity:
        yield "podAntiAffinity is"


def _other_resources(spec: PodSpec) -> list[str]:
    names: set[str] = set()
    for container in list_containers(spec):
        needs = container.resources
        for amounts in (needs.requests, needs.limits) if needs is not None else ():
            if amounts is not None and not amounts.keys() <= _ACTED_ON:
                names |= amounts.keys() - _ACTED_ON
    return sorted(name for name in names if not name.startswith(keys.MIG_RESOURCE_PREFIX))
