"""From every spelling of a GPU request to the one ask. Docs: docs/asks.md."""

from collections.abc import Mapping
from fractions import Fraction

import msgspec

from vramline.errors import RequestError
from vramline.model.ask import Ask, MibSize, ShareSize, Size, UnsizedSize, WholeSize
from vramline.units import Mib
from vramline.wire import keys
from vramline.wire.annotation_asks import AnnotationAsk, read_annotation_ask
from vramline.wire.ask_annotation import decode_ask
from vramline.wire.constraints import read_constraints, read_policy, read_realtime
from vramline.wire.container_asks import PodTotal, SizeKind, add_up, read_container_asks
from vramline.wire.identity import key_of, subject_of, uid_of
from vramline.wire.kubernetes import ObjectMeta, PodObject, PodSpec
from vramline.wire.quantities import read_whole
from vramline.wire.stages import list_containers

__all__ = ["find_mig_resource", "is_reservation_pod", "read_ask", "read_choices", "read_spelled_ask"]

_RESERVATION_APPS = ("kai-resource-reservation", "resource-reservation")


def read_ask(pod: PodObject) -> Ask | None:
    """Return what a pod asks of GPUs; None: nothing that Vramline hands out.

    Raises `RequestError` for a malformed or contradictory ask. Annotations that only choose among cards
    are read for pods that ask, and for no others: a pod without a GPU request is never touched. Where
    admission has sealed the ask, the seal is read and no spelling.
    """
    sealed = (pod.metadata.annotations or {}).get(keys.ASK)
    if sealed is not None:
        return decode_ask(sealed, pod.metadata)
    return None if is_reservation_pod(pod.metadata) else read_spelled_ask(pod)


def read_spelled_ask(pod: PodObject) -> Ask | None:
    """Return what the pod's limits and annotations ask for, whatever it carries besides."""
    spec = pod.spec or PodSpec()
    subject = subject_of(pod.metadata)
    annotations = pod.metadata.annotations or {}
    spoken = read_annotation_ask(annotations, spec, subject) if annotations else None
    asks = read_container_asks(spec, subject)
    total = add_up(spec, asks, subject, same_cards=spoken is not None) if any(asks) else None
    if spoken is None and total is None:
        return None
    _refuse_mig(spec, spoken, subject)
    if spoken is not None:
        gpus, size = spoken.gpus, spoken.size
        cores = _check_against_limits(spoken, total, subject)
    elif total is not None:
        gpus, size, cores = total.count, _size_of(total), total.cores
    ask = Ask(pod=key_of(pod.metadata), pod_uid=uid_of(pod.metadata), gpus=gpus, size=size, cores=cores)
    return read_choices(ask, annotations, subject)


def read_choices(ask: Ask, annotations: Mapping[str, str], subject: str) -> Ask:
    """Return the ask with which cards and which mode the annotations choose for it."""
    mode, enabled = read_realtime(annotations, subject)
    return msgspec.structs.replace(
        ask,
        constraints=read_constraints(annotations, subject),
        mode=mode,
        enable_realtime=enabled,
        node_policy=read_policy(annotations, keys.HAMI_NODE_POLICY, subject),
        gpu_policy=read_policy(annotations, keys.HAMI_GPU_POLICY, subject),
    )


def is_reservation_pod(meta: ObjectMeta) -> bool:
    """Whether this pod only holds a card for a KAI group, and asks for nothing itself.

    A pod that Vramline admitted or bound is none, however it is labelled later.
    """
    annotations = meta.annotations
    if annotations and (keys.ASK in annotations or keys.ALLOCATION in annotations):
        return False
    labels = meta.labels or {}
    return labels.get(keys.KAI_APP_LABEL) in _RESERVATION_APPS and keys.KAI_GROUP_LABEL in labels


def find_mig_resource(spec: PodSpec, subject: str) -> str | None:
    """Return the first MIG resource that a container asks for."""
    for container in list_containers(spec):
        needs = container.resources
        for amounts in (needs.limits, needs.requests) if needs else ():
            for key, value in (amounts or {}).items():
                if key.startswith(keys.MIG_RESOURCE_PREFIX):
                    field = f"container {container.name}: {key}"
                    if read_whole(value, subject=subject, field=field, low=0, high=65_535):
                        return key
    return None


def _size_of(total: PodTotal) -> Size:
    if total.kind is SizeKind.MIB:
        return MibSize(Mib(total.amount))
    if total.kind is SizeKind.UNSIZED:
        return UnsizedSize()
    return _share(total.amount)


def _share(percent: int) -> Size:
    share = Fraction(percent, 100)
    return WholeSize() if share == 1 else ShareSize(share.numerator, share.denominator)


def _check_against_limits(spoken: AnnotationAsk, total: PodTotal | None, subject: str) -> int:
    """Return the cores that limits add to an annotation's ask; anything else there must not contradict it."""
    if total is None:
        return 0
    if total.kind is not SizeKind.UNSIZED:
        key = keys.GPU_MEMORY_MIB if total.kind is SizeKind.MIB else keys.GPU_MEMORY_PERCENT
        raise RequestError(
            subject=subject,
            field=f"annotation {spoken.key} and limit {key}",
            problem="both ask for GPU memory",
            accepted="one of them",
        )
    if total.counted and total.count != spoken.gpus:
        raise RequestError(
            subject=subject,
            field=f"annotation {spoken.key} and limit {keys.GPU_COUNT}",
            problem=f"ask for {spoken.gpus} and for {total.count} GPUs",
            accepted=f"{keys.GPU_COUNT}: {spoken.gpus}, or no such limit",
        )
    return total.cores


def _refuse_mig(spec: PodSpec, spoken: AnnotationAsk | None, subject: str) -> None:
    mig = find_mig_resource(spec, subject)
    if mig is not None:
        other = f"annotation {spoken.key}" if spoken else keys.GPU_COUNT
        raise RequestError(
            subject=subject,
            field=f"{mig} and {other}",
            problem="ask for a MIG instance and for a share of a GPU",
            accepted="one of them",
        )
