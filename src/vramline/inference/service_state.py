"""How far an inference service has got, from its own conditions and from its pods. No I/O."""

import enum
from collections.abc import Iterable, Mapping

import msgspec

__all__ = ["ServiceState", "Stage", "judge_pods", "judge_service"]


class Stage(enum.StrEnum):
    """Where on its way a service is; a service is as far as the last of its pods."""

    PENDING = "Pending"
    PULLING = "Pulling"
    LOADING = "Loading"
    READY = "Ready"


_WAY = (Stage.PENDING, Stage.PULLING, Stage.LOADING, Stage.READY)

_HOPELESS = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
"""Reasons for which a container waits and that pass only if somebody changes something."""


class ServiceState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a service answers, and what keeps it from it."""

    ready: bool
    problem: str
    stage: Stage = Stage.PENDING
    detail: str = ""
    """What is waited for."""
    final: bool = False
    """Whether waiting longer is of no use."""
    stuck: bool = False
    """Whether it is of no use if the next look says the same."""


def judge_service(service: Mapping[str, object], pods: ServiceState) -> ServiceState:
    """Join what OME says of a service with what its pods say."""
    status = service.get("status")
    conditions = _list(status.get("conditions") if isinstance(status, Mapping) else None)
    ready = next((each for each in conditions if each.get("type") == "Ready"), None)
    if ready is not None and ready.get("status") == "True":
        return ServiceState(ready=True, problem="", stage=Stage.READY)
    if pods.problem:
        return pods
    words = "" if ready is None else str(ready.get("message") or ready.get("reason") or "")
    return msgspec.structs.replace(pods, problem=words)


def judge_pods(pods: Iterable[Mapping[str, object]]) -> ServiceState:
    """Return the worst that any pod of a service says; nothing wrong is an empty problem."""
    pods = list(pods)
    states = [state for pod in pods for state in _judge(pod)]
    states.sort(key=lambda state: (not state.final, not state.stuck))
    stage, detail = min(map(_how_far, pods), key=lambda way: _WAY.index(way[0]), default=_NO_POD)
    found = states[0] if states else ServiceState(ready=False, problem="")
    return msgspec.structs.replace(found, stage=stage, detail=detail)


_NO_POD = (Stage.PENDING, "no pod was made yet")


def _how_far(pod: Mapping[str, object]) -> tuple[Stage, str]:
    """Return how far one pod is, and what it waits for."""
    name, status = _child(pod, "metadata").get("name"), _child(pod, "status")
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") != "True" and not _child(pod, "spec").get("nodeName"):
        return Stage.PENDING, f"{name}: {scheduled.get('message') or 'waits for a node'}"
    where = f"{name} on {_child(pod, 'spec').get('nodeName')}"
    containers = _list(status.get("containerStatuses"))
    if _condition(status, "Ready").get("status") == "True":
        return Stage.READY, f"{where}: answers"
    if not containers or any(not _child(_child(each, "state"), "running") for each in containers):
        reasons = (_child(_child(each, "state"), "waiting").get("reason") for each in containers)
        told = next((str(reason) for reason in reasons if reason), "images are being pulled")
        return Stage.PULLING, f"{where}: {told}"
    restarts = sum(count for each in containers if isinstance(count := each.get("restartCount"), int))
    return Stage.LOADING, f"{where}: the model is being loaded" + (f", {restarts} restarts" * bool(restarts))


def _condition(status: Mapping[str, object], kind: str) -> Mapping[str, object]:
    found = (each for each in _list(status.get("conditions")) if each.get("type") == kind)
    return next(found, {})


def _judge(pod: Mapping[str, object]) -> Iterable[ServiceState]:
    metadata, status = pod.get("metadata"), pod.get("status")
    name = str(metadata.get("name")) if isinstance(metadata, Mapping) else "?"
    if not isinstance(status, Mapping):
        return
    for condition in _list(status.get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
            words = f"pod {name} is unschedulable: {condition.get('message') or 'no reason given'}"
            yield ServiceState(ready=False, problem=words, stuck=True)
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in _list(status.get(field)):
            yield from _judge_container(name, container)


def _judge_container(pod: str, container: Mapping[str, object]) -> Iterable[ServiceState]:
    where = f"container {container.get('name')} of pod {pod}"
    for field in ("state", "lastState"):
        ended = _child(_child(container, field), "terminated")
        if ended.get("reason") == "OOMKilled":
            yield ServiceState(ready=False, problem=f"{where} ran out of memory (OOMKilled)", final=True)
        elif "out of memory" in str(ended.get("message") or "").lower():
            yield ServiceState(ready=False, problem=f"{where} ran out of GPU memory", final=True)
    waiting = _child(_child(container, "state"), "waiting")
    if waiting.get("reason") in _HOPELESS:
        words = f"{where} waits: {waiting.get('reason')}"
        if waiting.get("message"):
            words += f" ({waiting.get('message')})"
        yield ServiceState(ready=False, problem=words, final=True)


def _child(parent: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = parent.get(name)
    return found if isinstance(found, Mapping) else {}


def _list(value: object) -> list[Mapping[str, object]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
