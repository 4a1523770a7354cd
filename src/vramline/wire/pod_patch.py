"""The JSON patch that makes a pod ours: scheduler, seal, managed resource, and which cards it sees.

Every change states the value that a field shall have; a field that has it already is left alone.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vramline.model.ask import Ask
from vramline.wire import keys
from vramline.wire.ask_annotation import encode_ask
from vramline.wire.kubernetes import Container

__all__ = [
    "PatchOperation",
    "ResourceChanges",
    "has_managed_resource",
    "patch_ephemeral",
    "patch_pod",
]

_FIELD_PATH = f"metadata.annotations['{keys.VISIBLE_DEVICES}']"
_ENTRY = {
    "name": keys.VISIBLE_DEVICES_ENV,
    "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": _FIELD_PATH}},
}
_PORTION = {
    "name": keys.KAI_PORTION_ENV,
    "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{keys.PORTION}']"}},
}
"""Only where the pod speaks KAI's language, and its container does not say something else."""
_MARKS = (keys.MANAGED, keys.SLOT)
_COUNTS = (keys.GPU_COUNT, keys.GPU_COUNT_SHARED)
_Json = dict[str, Any]


class PatchOperation(msgspec.Struct, frozen=True):
    """RFC 6902 `add`, which also replaces a member that is there."""

    path: str
    value: Any
    op: str = "add"


class ResourceChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the resources that a pod's containers ask kubelet for."""

    removed: frozenset[str] = frozenset()
    mark: str = keys.MANAGED
    """What sends the pod to us. A slot is also what kubelet counts for it, instead of any device."""
    devices: int = 0
    """How many devices kubelet shall count for the pod."""


def has_managed_resource(container: Container) -> bool:
    """Whether kube-scheduler would send a pod with this container to us."""
    needs = container.resources
    return needs is not None and any(
        mark in (amounts or ()) for mark in _MARKS for amounts in (needs.limits, needs.requests)
    )


def patch_pod(
    pod: Mapping[str, Any], ask: Ask, scheduler_name: str, *, resources: ResourceChanges
) -> tuple[tuple[PatchOperation, ...], tuple[str, ...]]:
    """Return the changes to a new pod, and what of the user's they replace."""
    spec = pod.get("spec") or {}
    patch: list[PatchOperation] = []
    if spec.get("schedulerName") != scheduler_name:
        patch.append(PatchOperation("/spec/schedulerName", scheduler_name))
    patch += _seal(pod.get("metadata") or {}, encode_ask(ask))
    lists = [(f"/spec/{field}", spec.get(field) or []) for field in ("initContainers", "containers")]
    containers = [(f"{path}/{i}", each) for path, each_list in lists for i, each in enumerate(each_list)]
    added = _resources_to_add([each for _, each in containers], resources)
    chosen = _choose_container(containers, resources.mark)
    warnings: list[str] = []
    for path, container in containers:
        given = container.get("resources") or {}
        wanted = _set_resources(given, resources.removed, added if path == chosen else {})
        if wanted != given:
            patch.append(PatchOperation(f"{path}/resources", wanted))
        _own_environment(container, path, patch, warnings, told=_told(pod))
    return tuple(patch), tuple(warnings)


def patch_ephemeral(
    pod: Mapping[str, Any], old_pod: Mapping[str, Any]
) -> tuple[tuple[PatchOperation, ...], tuple[str, ...]]:
    """Return the changes to ephemeral containers that an update adds; those that are there never change."""
    there = {each.get("name") for each in _ephemeral_containers(old_pod)}
    patch: list[PatchOperation] = []
    warnings: list[str] = []
    for i, container in enumerate(_ephemeral_containers(pod)):
        if container.get("name") not in there:
            _own_environment(container, f"/spec/ephemeralContainers/{i}", patch, warnings)
    return tuple(patch), tuple(warnings)


def _ephemeral_containers(pod: Mapping[str, Any]) -> list[_Json]:
    spec = pod.get("spec")
    found = spec.get("ephemeralContainers") if isinstance(spec, Mapping) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _seal(metadata: Mapping[str, Any], text: str) -> Iterator[PatchOperation]:
    annotations = metadata.get("annotations")
    if not annotations:
        yield PatchOperation("/metadata/annotations", {keys.ASK: text})
    elif keys.ASK not in annotations:
        yield PatchOperation(f"/metadata/annotations/{keys.ASK.replace('/', '~1')}", text)


def _choose_container(containers: list[tuple[str, _Json]], mark: str) -> str:
    """Return the path of the container that carries what the pod as a whole needs."""
    marked = [path for path, each in containers if mark in _names_of(each)]
    main = [path for path, _ in containers if path.startswith("/spec/containers/")]
    return (marked or main or [""])[0]


def _resources_to_add(containers: list[_Json], resources: ResourceChanges) -> dict[str, str]:
    """Return the mark, and the devices that kubelet is to count where no container names them any more."""
    named = {name for each in containers for name in _names_of(each)}
    added = {} if resources.mark in named else {resources.mark: "1"}
    if resources.devices and (keys.GPU_COUNT in resources.removed or named.isdisjoint(_COUNTS)):
        count = keys.GPU_COUNT_SHARED if keys.GPU_COUNT_SHARED in named else keys.GPU_COUNT
        added[count] = str(resources.devices)
    return added


def _names_of(container: _Json) -> set[str]:
    resources = container.get("resources") or {}
    return {*(resources.get("limits") or ()), *(resources.get("requests") or ())}


def _set_resources(resources: _Json, removed: frozenset[str], added: dict[str, str]) -> _Json:
    wanted = dict(resources)
    for part in ("limits", "requests"):
        given = resources.get(part)
        amounts = {name: amount for name, amount in (given or {}).items() if name not in removed} | added
        if amounts or given is not None:
            wanted[part] = amounts
    return wanted


def _told(pod: Mapping[str, Any]) -> tuple[_Json, ...]:
    """Return further variables for containers of a pod that asks in KAI's spelling."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    return (_PORTION,) if {keys.KAI_MEMORY, keys.KAI_FRACTION} & annotations.keys() else ()


def _own_environment(
    container: _Json,
    path: str,
    patch: list[PatchOperation],
    warnings: list[str],
    *,
    told: tuple[_Json, ...] = (),
) -> None:
    """Make the one variable that tells the container's cards follow the sealed annotation.

    What else is `told` is added where the container does not set it.
    """
    given = container.get("env")
    entries = given if isinstance(given, list) else []
    named = [i for i, each in enumerate(entries) if _is_named(each)]
    names = {each.get("name") for each in entries if isinstance(each, dict)}
    more = [each for each in told if each["name"] not in names]
    if len(named) == 1 and _is_ours(entries[named[0]]) and not more:
        return
    position = named[0] if named else len(entries)
    others = [each for each in entries if not _is_named(each)]
    patch.append(PatchOperation(f"{path}/env", [*others[:position], _ENTRY, *others[position:], *more]))
    warnings += [
        f"container {container.get('name')}: {keys.VISIBLE_DEVICES_ENV}{_value_of(entries[i])} is replaced"
        " by the GPUs that the pod gets"
        for i in named
        if not _is_ours(entries[i])
    ]


def _is_named(entry: object) -> bool:
    return isinstance(entry, dict) and entry.get("name") == keys.VISIBLE_DEVICES_ENV


def _is_ours(entry: _Json) -> bool:
    source = entry.get("valueFrom")
    field = source.get("fieldRef") if isinstance(source, dict) else None
    return isinstance(field, dict) and field.get("fieldPath") == _FIELD_PATH and not entry.get("value")


def _value_of(entry: _Json) -> str:
    value = entry.get("value")
    return f" = {value!r}" if isinstance(value, str) else ""
