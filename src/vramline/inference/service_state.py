"""How far an inference service has got, from its own conditions and from its pods. No I/O."""

from collections.abc import Iterable, Mapping

import msgspec

__all__ = ["ServiceState", "judge_pods", "judge_service"]

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
        return ServiceState(ready=True, problem="")
    if pods.problem:
        return pods
    words = "" if ready is None else str(ready.get("message") or ready.get("reason") or "")
    return ServiceState(ready=False, problem=words)


def judge_pods(pods: Iterable[Mapping[str, object]]) -> ServiceState:
    """Return the worst that any pod of a service says; nothing wrong is an empty problem."""
    states = [state for pod in pods for state in _judge(pod)]
    states.sort(key=lambda state: (not state.final, not state.stuck))
    return states[0] if states else ServiceState(ready=False, problem="")


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
