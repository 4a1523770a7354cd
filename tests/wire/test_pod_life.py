"""How far a pod has got, and since when."""

import math
from typing import Any

import pytest

from kubernetes_builders import pod_object
from vramline.errors import RequestError
from vramline.model.pod import PodPhase
from vramline.wire.pod_life import PodLife, read_life


def time(seconds: int) -> str:
    return f"1970-01-01T00:00:{seconds:02}Z"


def running(at: int | None = None) -> dict[str, Any]:
    return {"name": "main", "state": {"running": {"startedAt": time(at)} if at is not None else {}}}


def terminated(started: int | None = None, finished: int | None = None) -> dict[str, Any]:
    times = {"startedAt": started, "finishedAt": finished}
    state = {key: time(at) for key, at in times.items() if at is not None}
    return {"name": "main", "state": {"terminated": state}}


WAITING = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}
DELETED = {"deletionTimestamp": time(50)}


def life(**fields: Any) -> PodLife:
    return read_life(pod_object(**fields))


@pytest.mark.parametrize(
    ("fields", "phase"),
    [
        pytest.param({}, PodPhase.PENDING, id="no node"),
        pytest.param({"nodeName": ""}, PodPhase.PENDING, id="an empty node"),
        pytest.param({"nodeName": "n1"}, PodPhase.RUNNING, id="a node, and nothing else said"),
        pytest.param({"nodeName": "n1", "status": {"phase": "Pending"}}, PodPhase.BOUND, id="bound"),
        pytest.param(
            {"nodeName": "n1", "status": {"phase": "Pending", "containerStatuses": [WAITING]}},
            PodPhase.BOUND,
            id="its container is being created",
        ),
        pytest.param(
            {"nodeName": "n1", "status": {"phase": "Pending", "initContainerStatuses": [running(5)]}},
            PodPhase.RUNNING,
            id="an init container runs",
        ),
        pytest.param({"nodeName": "n1", "status": {"phase": "Running"}}, PodPhase.RUNNING, id="running"),
        pytest.param({"nodeName": "n1", "status": {"phase": "Unknown"}}, PodPhase.RUNNING, id="unknown"),
        pytest.param({"nodeName": "n1", "meta": DELETED}, PodPhase.RELEASING, id="being deleted"),
        pytest.param({"nodeName": "n1", "status": {"phase": "Succeeded"}}, PodPhase.FINISHED, id="succeeded"),
        pytest.param({"nodeName": "n1", "status": {"phase": "Failed"}}, PodPhase.FINISHED, id="failed"),
        pytest.param(
            {"nodeName": "n1", "status": {"phase": "Failed"}, "meta": DELETED},
            PodPhase.FINISHED,
            id="failed and being deleted",
        ),
        pytest.param({"status": {"phase": "Failed"}}, PodPhase.FINISHED, id="failed without a node"),
        pytest.param({"meta": DELETED}, PodPhase.FINISHED, id="deleted before it had a node"),
    ],
)
def test_phase(fields: dict[str, Any], phase: PodPhase) -> None:
    assert life(**fields).phase is phase


def test_a_phase_that_is_none_is_refused() -> None:
    with pytest.raises(RequestError) as caught:
        life(status={"phase": "Sleeping"})

    assert str(caught.value) == (
        "Pod ns/p: status.phase = 'Sleeping': is not a phase of a pod;"
        " accepted: Pending, Running, Succeeded, Failed, Unknown"
    )


@pytest.mark.parametrize(
    ("status", "meta", "started_at"),
    [
        pytest.param({"containerStatuses": [running(7), running(5)]}, {}, 5.0, id="the first container"),
        pytest.param(
            {"containerStatuses": [running(7)], "initContainerStatuses": [terminated(3, 6)]},
            {},
            3.0,
            id="an init container before it",
        ),
        pytest.param(
            {"containerStatuses": [{**running(30), "lastState": terminated(4, 20)["state"]}]},
            {},
            4.0,
            id="a container that was restarted",
        ),
        pytest.param(
            {"containerStatuses": [running()], "startTime": time(2)}, {}, 2.0, id="the start of the pod"
        ),
        pytest.param({}, {"creationTimestamp": time(1)}, 1.0, id="its creation"),
        pytest.param({}, {}, -math.inf, id="at some time before anyone looked"),
        pytest.param({"phase": "Pending", "startTime": time(2)}, {}, None, id="not yet"),
    ],
)
@pytest.mark.parametrize("deleted", [False, True])
def test_started_at(
    status: dict[str, Any], meta: dict[str, Any], started_at: float | None, deleted: bool
) -> None:
    found = life(nodeName="n1", status=status, meta={**meta, **(DELETED if deleted else {})})

    assert found.started_at == started_at


@pytest.mark.parametrize(
    ("statuses", "inits", "ended_at"),
    [
        pytest.param([terminated(1, 30)], [], 30.0, id="its container ended"),
        pytest.param([terminated(1, 30), terminated(1, 40)], [], 40.0, id="the last one counts"),
        pytest.param([terminated(1, 30), running(1)], [], None, id="one still runs"),
        pytest.param([terminated(1, 30), WAITING], [], None, id="one still waits"),
        pytest.param([terminated(1)], [], 50.0, id="nobody says when: the deletion time"),
        pytest.param([terminated(1, 30)], [terminated(0, 1)], 30.0, id="init containers ended before"),
        pytest.param([terminated(1, 30)], [running(0)], None, id="a sidecar still runs"),
        pytest.param([], [], None, id="nobody says"),
    ],
)
def test_ended_at(statuses: list[Any], inits: list[Any], ended_at: float | None) -> None:
    status = {"containerStatuses": statuses, "initContainerStatuses": inits}

    assert life(nodeName="n1", status=status, meta=DELETED).ended_at == ended_at


def test_a_pod_with_more_containers_than_statuses_has_not_ended() -> None:
    pod = pod_object(
        {"name": "a"},
        {"name": "b"},
        nodeName="n1",
        meta=DELETED,
        status={"containerStatuses": [terminated(1, 30)]},
    )

    assert read_life(pod).ended_at is None


def test_a_running_pod_whose_containers_ended_may_restart_them() -> None:
    found = life(nodeName="n1", status={"phase": "Running", "containerStatuses": [terminated(1, 30)]})

    assert (found.phase, found.ended_at) == (PodPhase.RUNNING, None)


def test_a_finished_pod_ended_when_its_containers_did() -> None:
    found = life(nodeName="n1", status={"phase": "Failed", "containerStatuses": [terminated(1, 30)]})

    assert found.ended_at == 30.0
