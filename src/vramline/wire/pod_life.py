"""How far a pod's life has got, and since when."""

import datetime as dt

import msgspec

from vramline.errors import RequestError
from vramline.model.pod import PodPhase
from vramline.wire.identity import subject_of
from vramline.wire.kubernetes import ContainerState, PodObject, PodSpec, PodStatus
from vramline.wire.times import seconds_of

__all__ = ["PodLife", "read_life"]

_BEFORE_ANYONE_LOOKED = float("-inf")
_PHASES = ("", "Pending", "Running", "Succeeded", "Failed", "Unknown")


class PodLife(msgspec.Struct, frozen=True, kw_only=True):
    """Phase and times."""

    phase: PodPhase
    started_at: float | None = None
    ended_at: float | None = None


def read_life(pod: PodObject) -> PodLife:
    """Read a pod's phase and times.

    A pod whose deletion was asked for before it was on any node holds nothing and is not placed any more.
    """
    status = pod.status or PodStatus()
    on_node = bool(pod.spec and pod.spec.node_name)
    deleting = pod.metadata.deletion_timestamp is not None
    if _phase_word(pod, status) in ("Succeeded", "Failed"):
        return PodLife(phase=PodPhase.FINISHED, ended_at=_ended_at(pod, status))
    if not on_node:
        return PodLife(phase=PodPhase.FINISHED if deleting else PodPhase.PENDING)
    started_at = _started_at(pod, status)
    if deleting:
        return PodLife(phase=PodPhase.RELEASING, started_at=started_at, ended_at=_ended_at(pod, status))
    phase = PodPhase.BOUND if started_at is None else PodPhase.RUNNING
    return PodLife(phase=phase, started_at=started_at)


def _phase_word(pod: PodObject, status: PodStatus) -> str:
    word = status.phase or ""
    if word not in _PHASES:
        raise RequestError(
            subject=subject_of(pod.metadata),
            field="status.phase",
            value=word,
            problem="is not a phase of a pod",
            accepted=", ".join(_PHASES[1:]),
        )
    return word


def _started_at(pod: PodObject, status: PodStatus) -> float | None:
    """Return when the first container started; None: the pod says that none has."""
    first = None
    for each in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        first = _earlier(_earlier(first, each.state), each.last_state)
    if first is not None:
        return seconds_of(first)
    if status.phase == "Pending":
        return None
    since = status.start_time or pod.metadata.creation_timestamp
    return _BEFORE_ANYONE_LOOKED if since is None else seconds_of(since)


def _earlier(first: dt.datetime | None, state: ContainerState | None) -> dt.datetime | None:
    """Return `first`, or when a container in this state started, if that was before."""
    for part in (state.running, state.terminated) if state is not None else ():
        if part is not None and part.started_at is not None and (first is None or part.started_at < first):
            first = part.started_at
    return first


def _ended_at(pod: PodObject, status: PodStatus) -> float | None:
    """Return when the last container ended; None: not all have, or nobody says when."""
    statuses = status.container_statuses or []
    if len(statuses) < max(1, len((pod.spec or PodSpec()).containers or ())):
        return None
    if any(each.state and each.state.running for each in status.init_container_statuses or ()):
        return None  # a sidecar still runs
    ends: list[dt.datetime | None] = []
    for each in statuses:
        if each.state is None or each.state.terminated is None:
            return None
        ends.append(each.state.terminated.finished_at or pod.metadata.deletion_timestamp)
    known = [end for end in ends if end is not None]
    return seconds_of(max(known)) if len(known) == len(ends) else None
