"""From Deployments, StatefulSets, ReplicaSets and Jobs to the pods they would still make."""

from collections import Counter
from collections.abc import Iterable, Iterator

from vramline.errors import RequestError
from vramline.wire.identity import key_of, namespace_of
from vramline.wire.kubernetes import ObjectMeta, PodObject, WorkloadObject

__all__ = ["MAX_REPLICAS", "count_pods", "expand_workloads"]

MAX_REPLICAS = 1_000_000

_Owner = tuple[str, str]
"""Kind, and namespace/name."""


def count_pods(workload: WorkloadObject) -> int:
    """Return how many pods the workload wants at one time."""
    spec = workload.spec
    if workload.kind != "Job":
        return _check(workload, "replicas", 1 if spec.replicas is None else spec.replicas)
    if spec.suspend:
        return 0
    wanted = _check(workload, "parallelism", 1 if spec.parallelism is None else spec.parallelism)
    if spec.completions is None:
        return wanted
    return min(wanted, _check(workload, "completions", spec.completions))


def expand_workloads(objects: Iterable[PodObject | WorkloadObject]) -> Iterator[PodObject]:
    """Yield the pods among `objects`, with each workload replaced by the pods that it would still make.

    Pods that a workload already owns count, so that the dump of a live cluster is not doubled; nor is a
    ReplicaSet expanded whose Deployment is there too. Names are `<workload>-<number>`, skipping those in
    use; a StatefulSet's ordinals come first, because they are not free to be anything else.
    """
    objects = list(objects)
    workloads = [each for each in objects if isinstance(each, WorkloadObject)]
    owned = _count_owned(objects, {_identity(each): _owner_of(each.metadata) for each in workloads})
    there = {_identity(each) for each in workloads}
    taken = {key_of(each.metadata) for each in objects if isinstance(each, PodObject)}
    made: dict[_Owner, list[PodObject]] = {}
    for workload in sorted(workloads, key=lambda each: each.kind != "StatefulSet"):
        if _owner_of(workload.metadata) not in there:
            missing = count_pods(workload) - owned[_identity(workload)]
            made[_identity(workload)] = list(_make_pods(workload, missing, taken))
    for each in objects:
        if isinstance(each, PodObject):
            yield each
        else:
            yield from made.get(_identity(each), ())


def _make_pods(workload: WorkloadObject, missing: int, taken: set[str]) -> Iterator[PodObject]:
    template = workload.spec.template
    shape = template.metadata or ObjectMeta()
    namespace = namespace_of(workload.metadata)
    number = 0
    for _ in range(missing):
        while f"{namespace}/{workload.metadata.name}-{number}" in taken:
            number += 1
        meta = ObjectMeta(
            name=f"{workload.metadata.name}-{number}",
            namespace=namespace,
            labels=shape.labels,
            annotations=shape.annotations,
            creation_timestamp=workload.metadata.creation_timestamp,
        )
        taken.add(key_of(meta))
        yield PodObject(metadata=meta, spec=template.spec)


def _count_owned(
    objects: Iterable[PodObject | WorkloadObject], owner_of_workload: dict[_Owner, _Owner | None]
) -> Counter[_Owner]:
    """Count the living pods of each workload, through a ReplicaSet to its Deployment."""
    owned: Counter[_Owner] = Counter()
    for each in objects:
        owner = _owner_of(each.metadata) if isinstance(each, PodObject) and _counts(each) else None
        if owner is not None:
            owned[owner] += 1
            above = owner_of_workload.get(owner)
            if above is not None:
                owned[above] += 1
    return owned


def _counts(pod: PodObject) -> bool:
    """Whether its workload would not replace this pod: it lives, or it has done its work for a Job."""
    phase = pod.status.phase if pod.status else None
    owner = _owner_of(pod.metadata)
    is_done = phase == "Failed" or (phase == "Succeeded" and owner is not None and owner[0] != "Job")
    return pod.metadata.deletion_timestamp is None and not is_done


def _owner_of(meta: ObjectMeta) -> _Owner | None:
    for owner in meta.owner_references or ():
        if owner.controller:
            return owner.kind, f"{namespace_of(meta)}/{owner.name}"
    return None


def _identity(workload: WorkloadObject) -> _Owner:
    return workload.kind, key_of(workload.metadata)


def _check(workload: WorkloadObject, field: str, value: int) -> int:
    if not 0 <= value <= MAX_REPLICAS:
        raise RequestError(
            subject=f"{workload.kind} {key_of(workload.metadata)}",
            field=f"spec.{field}",
            value=value if value.bit_length() < 1024 else None,
            problem="is not a believable number of pods",
            accepted=f"0 to {MAX_REPLICAS}",
        )
    return value
