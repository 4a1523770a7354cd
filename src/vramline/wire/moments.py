"""Every point in time that objects mention, so that age can be judged inside an input."""

import datetime as dt
from collections.abc import Iterable, Iterator

from vramline.wire.kubernetes import ContainerState, NodeObject, PodObject
from vramline.wire.times import seconds_of

__all__ = ["list_moments"]


def list_moments(nodes: Iterable[NodeObject], pods: Iterable[PodObject]) -> Iterator[float]:
    """Yield all times of nodes and pods but their deletion times, which may lie in the future."""
    for moment in (*_of_nodes(nodes), *_of_pods(pods)):
        if moment is not None:
            yield seconds_of(moment)


def _of_nodes(nodes: Iterable[NodeObject]) -> Iterator[dt.datetime | None]:
    for node in nodes:
        yield node.metadata.creation_timestamp
        for condition in (node.status.conditions if node.status else None) or ():
            yield condition.last_heartbeat_time
            yield condition.last_transition_time


def _of_pods(pods: Iterable[PodObject]) -> Iterator[dt.datetime | None]:
    for pod in pods:
        yield pod.metadata.creation_timestamp
        status = pod.status
        if status is None:
            continue
        yield status.start_time
        for condition in status.conditions or ():
            yield condition.last_transition_time
        for each in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
            yield from _of_state(each.state)
            yield from _of_state(each.last_state)


def _of_state(state: ContainerState | None) -> Iterator[dt.datetime | None]:
    if state is not None and state.running is not None:
        yield state.running.started_at
    if state is not None and state.terminated is not None:
        yield state.terminated.started_at
        yield state.terminated.finished_at
