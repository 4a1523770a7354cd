"""What admission makes of a pod: nothing, a refusal, or the few changes without which it cannot be placed.

Planning is a function of the pod alone. Planning again on the changed pod changes nothing more, so the API
server may ask as often as it likes.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from vramline.errors import RequestError
from vramline.model.ask import Ask, UnsizedSize, WholeSize
from vramline.wire import keys
from vramline.wire.admission_options import AdmissionOptions, Backend, SchedulerNamePolicy
from vramline.wire.ask_annotation import decode_ask
from vramline.wire.asks import read_choices, read_spelled_ask
from vramline.wire.decoding import convert_document
from vramline.wire.identity import subject_of
from vramline.wire.kubernetes import PodObject, PodSpec
from vramline.wire.notes import list_annotation_notes
from vramline.wire.pod_patch import (
    PatchOperation,
    ResourceChanges,
    has_managed_resource,
    patch_ephemeral,
    patch_pod,
)
from vramline.wire.reservations import check_tokens
from vramline.wire.stages import list_containers

__all__ = ["AdmissionOptions", "Admitted", "Backend", "Refused", "SchedulerNamePolicy", "plan_admission"]

_DEFAULT_SCHEDULER = "default-scheduler"


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """The pod may be stored, with these changes; an empty patch leaves it as it is."""

    patch: tuple[PatchOperation, ...] = ()
    warnings: tuple[str, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    """The pod may not be stored."""

    message: str


def plan_admission(
    pod: Mapping[str, Any],
    *,
    operation: str,
    options: AdmissionOptions,
    old_pod: Mapping[str, Any] | None = None,
) -> Admitted | Refused:
    """Return what becomes of a pod that is created, or of the ephemeral containers that an update adds.

    `pod` is the object as JSON. A pod that asks for no GPU, and one that another scheduler places, stays as
    it is. What is wrong with an ask comes back as the text of its `RequestError`.
    """
    try:
        if operation == "CREATE":
            return _plan_create(pod, options)
        if operation == "UPDATE":
            return _plan_update(pod, old_pod or {})
    except RequestError as error:
        return Refused(str(error))
    return Admitted()


def _plan_create(pod: Mapping[str, Any], options: AdmissionOptions) -> Admitted:
    typed = _read(pod)
    spec = typed.spec or PodSpec()
    _refuse_sealed(typed)
    if keys.MIRROR in (typed.metadata.annotations or {}):
        return Admitted(warnings=("a static pod is not placed by Vramline, whatever it asks for",))
    given = spec.scheduler_name or _DEFAULT_SCHEDULER
    target = _choose_scheduler(given, options)
    if target != options.scheduler_name and not spec.node_name:
        kept = f"schedulerName {given} is kept: Vramline does not place this pod"
        return Admitted(warnings=(kept,) if _asks_for_something(typed) else ())
    ask = _find_ask(typed)
    notes = tuple(list_annotation_notes(typed, asks=ask is not None))
    if ask is None:
        return Admitted(warnings=notes)
    check_tokens(typed.metadata.annotations or {}, subject=subject_of(typed.metadata))
    _refuse_node_name(spec, subject_of(typed.metadata))
    patch, warnings = patch_pod(pod, ask, target, resources=_resource_changes(ask, options))
    if target != given != _DEFAULT_SCHEDULER:
        warnings = (f"schedulerName {given} is replaced by {target}", *warnings)
    return Admitted(patch=patch, warnings=(*warnings, *notes))


def _plan_update(pod: Mapping[str, Any], old_pod: Mapping[str, Any]) -> Admitted:
    if keys.ASK not in (_read(pod).metadata.annotations or {}):
        return Admitted()
    patch, warnings = patch_ephemeral(pod, old_pod)
    return Admitted(patch=patch, warnings=warnings)


def _read(pod: Mapping[str, Any]) -> PodObject:
    """Convert what admission looks at; the rest of a pod is none of its business."""
    parts = {part: pod[part] for part in ("metadata", "spec") if part in pod}
    return convert_document(parts, PodObject, subject="Pod")


def _choose_scheduler(given: str, options: AdmissionOptions) -> str:
    policy = options.scheduler_name_policy
    if policy is SchedulerNamePolicy.ALWAYS:
        return options.scheduler_name
    if policy is SchedulerNamePolicy.DEFAULT and given == _DEFAULT_SCHEDULER:
        return options.scheduler_name
    return given


def _asks_for_something(typed: PodObject) -> bool:
    try:
        return read_spelled_ask(typed) is not None
    except RequestError:
        return True


def _find_ask(typed: PodObject) -> Ask | None:
    """Return the ask: as it is spelled, or as an earlier call of this webhook has sealed it."""
    annotations = typed.metadata.annotations or {}
    spelled = read_spelled_ask(typed)
    sealed = annotations.get(keys.ASK)
    if sealed is None:
        return spelled
    subject = subject_of(typed.metadata)
    if not any(has_managed_resource(each) for each in list_containers(typed.spec or PodSpec())):
        raise _sealed_key(keys.ASK, subject)
    ask = decode_ask(sealed, typed.metadata)
    if read_choices(_left_of(ask, spelled), annotations, subject) != ask:
        raise RequestError(
            subject=subject,
            field=f"annotation {keys.ASK}",
            problem="contradicts limits or other annotations of the pod",
            accepted="no such annotation",
        )
    return ask


def _left_of(ask: Ask, spelled: Ask | None) -> Ask:
    """Return what the spellings that admission left say: removed limits say nothing, so the seal holds."""
    if spelled is None:
        return ask
    whole = isinstance(ask.size, WholeSize) and isinstance(spelled.size, UnsizedSize)
    return msgspec.structs.replace(
        spelled, size=ask.size if whole else spelled.size, cores=spelled.cores or ask.cores
    )


def _refuse_sealed(typed: PodObject) -> None:
    for key in (keys.ALLOCATION, keys.VISIBLE_DEVICES, keys.PORTION):
        if key in (typed.metadata.annotations or {}):
            raise _sealed_key(key, subject_of(typed.metadata))


def _sealed_key(key: str, subject: str) -> RequestError:
    return RequestError(
        subject=subject,
        field=f"annotation {key}",
        problem="is written by Vramline alone",
        accepted="no such annotation",
    )


def _refuse_node_name(spec: PodSpec, subject: str) -> None:
    if spec.node_name:
        raise RequestError(
            subject=subject,
            field="spec.nodeName",
            value=spec.node_name,
            problem="takes GPUs without asking the scheduler",
            accepted="no nodeName; a nodeSelector on kubernetes.io/hostname chooses a node",
        )


def _resource_changes(ask: Ask, options: AdmissionOptions) -> ResourceChanges:
    """Return which resources must not reach kubelet, and which it must count.

    Sizes and cores go in any case: no stock device plugin offers them, so that no node would have them.
    Device counts go where reservation pods hold the cards, else kubelet would give devices of its own choice;
    where our own plugin stands for the cards a slot comes instead. Only where nobody holds anything whole
    cards stay in kubelet's count. The mark of the other backend goes: kube-scheduler looks again at a pod
    that found no room only once a node offers all that the pod names.
    """
    sizes = {keys.GPU_MEMORY_MIB, keys.GPU_MEMORY_PERCENT, keys.GPU_CORES, keys.GPU_PRIORITY}
    counts = {keys.GPU_COUNT, keys.GPU_COUNT_SHARED}
    if options.backend is Backend.PLUGIN:
        return ResourceChanges(removed=frozenset({*sizes, *counts, keys.MANAGED}), mark=keys.SLOT)
    counted = isinstance(ask.size, WholeSize | UnsizedSize) and not options.makes_reservations
    if counted and isinstance(ask.size, UnsizedSize):
        counts = set()
    return ResourceChanges(
        removed=frozenset({*sizes, *counts, keys.SLOT}), devices=ask.gpus if counted else 0
    )
