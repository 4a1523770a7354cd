"""From a Kubernetes pod to the pod that placement reasons about."""

import re

import msgspec

from vramline.errors import RequestError
from vramline.model.pod import Allocation, HamiPhase, Pod, PodPhase
from vramline.wire import keys
from vramline.wire.allocation import read_allocation
from vramline.wire.asks import is_reservation_pod, read_ask
from vramline.wire.hami import decode_devices, read_phase, sum_devices
from vramline.wire.identity import namespace_of, subject_of, uid_of
from vramline.wire.kubernetes import ObjectMeta, PodObject, PodSpec, PodStatus
from vramline.wire.notes import list_notes
from vramline.wire.pod_life import read_life
from vramline.wire.pod_specs import read_spec
from vramline.wire.reservations import find_seals
from vramline.wire.times import seconds_of
from vramline.wire.uuids import card_of

__all__ = ["PodSighting", "read_pod", "read_sighting"]

_NAME = re.compile(r"[^\s/]{1,253}")


class PodSighting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod as the API server told of it, whether or not all of it could be read."""

    uid: str
    version: str
    """Its resourceVersion."""
    node: str
    """Where it is; empty: nowhere yet."""
    is_sealed: bool
    """Whether it carries an allocation of ours."""
    pod: Pod | None
    problem: str = ""
    """Why it could not be read."""
    reservation: PodObject | None = None
    """The object itself, if it may be a reservation pod."""


def read_sighting(document: PodObject) -> PodSighting:
    """Read of a pod what can be read."""
    meta, pod, problem = document.metadata, None, ""
    try:
        pod = read_pod(document)
    except RequestError as error:
        problem = str(error)
    annotations = meta.annotations or {}
    return PodSighting(
        uid=meta.uid or "",
        version=meta.resource_version or "",
        node=(document.spec.node_name if document.spec else None) or "",
        is_sealed=keys.ALLOCATION in annotations,
        pod=pod,
        problem=problem,
        reservation=document if keys.RESERVES in annotations else None,
    )


def read_pod(pod: PodObject) -> Pod:
    """Translate a whole pod; raises `RequestError` with the first thing that is wrong with it."""
    meta, spec = pod.metadata, pod.spec or PodSpec()
    subject = subject_of(meta)
    for field, name in (("metadata.name", meta.name or ""), ("metadata.namespace", namespace_of(meta))):
        if not _NAME.fullmatch(name):
            raise RequestError(subject=subject, field=field, value=name, problem="is not a name")
    ask, known = read_ask(pod), read_spec(spec, subject)
    host, devices = known.host, known.device_containers
    if ask is not None and host.cpu_milli:
        ask = msgspec.structs.replace(ask, cpu_milli=host.cpu_milli)
    life = read_life(pod)
    status, waits = pod.status or PodStatus(), life.phase is PodPhase.PENDING
    placed = bool(spec.node_name) and life.phase is not PodPhase.FINISHED
    return Pod(
        namespace=namespace_of(meta),
        name=meta.name or "",
        uid=uid_of(meta),
        ask=ask,
        host=host,
        phase=life.phase,
        node=spec.node_name or None,
        allocation=_find_allocation(meta, spec.node_name or "", subject) if placed else None,
        created_at=None if meta.creation_timestamp is None else seconds_of(meta.creation_timestamp),
        started_at=life.started_at,
        ended_at=life.ended_at,
        priority=spec.priority or 0,
        may_preempt=spec.preemption_policy != "Never",
        nominated=(status.nominated_node_name or None) if waits else None,
        scheduler=spec.scheduler_name or "",
        is_plain=not known.unsimulated,
        told=_told(status),
        preempts_on=_preempts_on(status) if waits else None,
        holds_devices=any(devices),
        device_containers=devices if any(devices) else (),
        hami_phase=_hami_phase(meta, status),
        reserves_group=_reserved_group(meta),
        advances=() if ask is None else find_seals(meta.annotations or {}),
        notes=list_notes(pod, asks=ask is not None, unsimulated=known.unsimulated),
    )


def _hami_phase(meta: ObjectMeta, status: PodStatus) -> HamiPhase:
    """HAMi's device plugin looks for its pod among those that are Pending by their own status."""
    waits = status.phase in (None, "", "Pending")
    return read_phase((meta.annotations or {}).get(keys.HAMI_BIND_PHASE)) if waits else HamiPhase.NONE


def _told(status: PodStatus) -> str:
    """Return why a pod waits, as its own status says."""
    for condition in status.conditions or ():
        if condition.type == keys.CONDITION_PLACED and condition.status == "False":
            return condition.reason or ""
    return ""


def _preempts_on(status: PodStatus) -> str | None:
    """Return the node that a preemptor's condition has as its reason."""
    for condition in status.conditions or ():
        if condition.type == keys.CONDITION_PREEMPTOR and condition.status == "True":
            return condition.reason
    return None


def _find_allocation(meta: ObjectMeta, node: str, subject: str) -> Allocation | None:
    """Read which cards the pod is on: our own annotation first, then HAMi's, then KAI's groups."""
    if is_reservation_pod(meta):
        return None
    annotations = meta.annotations or {}
    own = annotations.get(keys.ALLOCATION)
    if own is not None:
        return read_allocation(own, node=node, subject=subject)
    devices = annotations.get(keys.HAMI_ALLOCATED)
    if devices is not None:
        shares = sum_devices(decode_devices(devices, subject=subject))
        return Allocation(gpus=shares, origin=keys.HAMI_ALLOCATED) if shares else None
    groups = _groups(meta)
    return Allocation(groups=groups, origin=keys.KAI_GROUP_LABEL) if groups else None


def _groups(meta: ObjectMeta) -> tuple[str, ...]:
    """Return the KAI groups of a pod: one plain label, or one label for each of several devices."""
    found = {
        value or key.removeprefix(f"{keys.KAI_GROUP_LABEL}/"): None
        for key, value in (meta.labels or {}).items()
        if key == keys.KAI_GROUP_LABEL or key.startswith(f"{keys.KAI_GROUP_LABEL}/")
    }
    return tuple(group for group in found if group)


def _reserved_group(meta: ObjectMeta) -> tuple[str, str] | None:
    if not is_reservation_pod(meta):
        return None
    group = (meta.labels or {}).get(keys.KAI_GROUP_LABEL)
    uuid = (meta.annotations or {}).get(keys.KAI_RESERVED_UUID)
    return (group, card_of(uuid)) if group and uuid else None
