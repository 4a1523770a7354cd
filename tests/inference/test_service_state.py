"""How far a service has got."""

from typing import Any

import pytest

from vramline.inference.service_state import ServiceState, Stage, judge_pods, judge_service

NOTHING = ServiceState(ready=False, problem="")


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "s-engine-0"}, "status": status}


def container(**state: Any) -> dict[str, Any]:
    return {"name": "ome-container", **state}


def test_a_service_that_ome_calls_ready_is_ready() -> None:
    service = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}

    assert judge_service(service, NOTHING).ready


def test_a_service_that_is_not_says_why_in_omes_words() -> None:
    service = {"status": {"conditions": [{"type": "Ready", "status": "False", "message": "no runtime"}]}}

    assert judge_service(service, NOTHING) == ServiceState(ready=False, problem="no runtime")


@pytest.mark.parametrize("service", [{}, {"status": None}, {"status": {"conditions": None}}])
def test_a_service_without_a_state_is_not_ready(service: dict[str, Any]) -> None:
    assert judge_service(service, NOTHING) == NOTHING


@pytest.mark.parametrize(
    ("status", "words", "final"),
    [
        pytest.param(
            {
                "conditions": [
                    {"type": "PodScheduled", "reason": "Unschedulable", "message": "short by 9 MiB"}
                ]
            },
            "pod s-engine-0 is unschedulable: short by 9 MiB",
            False,
            id="unschedulable",
        ),
        pytest.param(
            {"containerStatuses": [container(state={"waiting": {"reason": "CrashLoopBackOff"}})]},
            "container ome-container of pod s-engine-0 waits: CrashLoopBackOff",
            True,
            id="crashes",
        ),
        pytest.param(
            {
                "containerStatuses": [
                    container(state={"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}})
                ]
            },
            "container ome-container of pod s-engine-0 waits: ImagePullBackOff (no such image)",
            True,
            id="no image",
        ),
        pytest.param(
            {"containerStatuses": [container(lastState={"terminated": {"reason": "OOMKilled"}})]},
            "container ome-container of pod s-engine-0 ran out of memory (OOMKilled)",
            True,
            id="out of memory",
        ),
    ],
)
def test_what_pods_say(status: dict[str, Any], words: str, final: bool) -> None:
    state = judge_service({}, judge_pods([pod(**status)]))

    assert (state.problem, state.final, state.stuck) == (words, final, not final)


def test_a_pod_that_is_on_its_way_is_no_problem() -> None:
    waiting = container(state={"waiting": {"reason": "ContainerCreating"}})

    state = judge_pods([pod(containerStatuses=[waiting]), {}])

    assert (state.problem, state.final, state.stuck) == ("", False, False)


def test_what_cannot_pass_by_itself_is_said_first() -> None:
    stuck = pod(conditions=[{"type": "PodScheduled", "reason": "Unschedulable"}])
    crashed = pod(containerStatuses=[container(state={"waiting": {"reason": "CrashLoopBackOff"}})])

    assert judge_pods([stuck, crashed]).final


SCHEDULED = {"type": "PodScheduled", "status": "True"}
RUNNING = container(state={"running": {"startedAt": "2026-01-01T00:00:00Z"}}, restartCount=0)


def placed(**status: Any) -> dict[str, Any]:
    return {**pod(**status), "spec": {"nodeName": "n1"}}


@pytest.mark.parametrize(
    ("pods", "stage", "detail"),
    [
        pytest.param([], Stage.PENDING, "no pod was made yet", id="no pod"),
        pytest.param([pod()], Stage.PENDING, "s-engine-0: waits for a node", id="not tried yet"),
        pytest.param(
            [pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "0/2 nodes"}])],
            Stage.PENDING,
            "s-engine-0: 0/2 nodes",
            id="unschedulable",
        ),
        pytest.param(
            [placed(conditions=[SCHEDULED])],
            Stage.PULLING,
            "s-engine-0 on n1: images are being pulled",
            id="bound",
        ),
        pytest.param(
            [placed(containerStatuses=[container(state={"waiting": {"reason": "ContainerCreating"}})])],
            Stage.PULLING,
            "s-engine-0 on n1: ContainerCreating",
            id="creating",
        ),
        pytest.param(
            [placed(containerStatuses=[RUNNING])],
            Stage.LOADING,
            "s-engine-0 on n1: the model is being loaded",
            id="loading",
        ),
        pytest.param(
            [placed(containerStatuses=[{**RUNNING, "restartCount": 2}])],
            Stage.LOADING,
            "s-engine-0 on n1: the model is being loaded, 2 restarts",
            id="restarted",
        ),
        pytest.param(
            [placed(conditions=[{"type": "Ready", "status": "True"}]), placed(conditions=[SCHEDULED])],
            Stage.PULLING,
            "s-engine-0 on n1: images are being pulled",
            id="as far as the last of its pods",
        ),
    ],
)
def test_how_far_a_service_is_is_told(pods: list[dict[str, Any]], stage: Stage, detail: str) -> None:
    state = judge_service({}, judge_pods(pods))

    assert (state.stage, state.detail) == (stage, detail)


def test_an_engine_that_ran_out_of_gpu_memory_is_told_apart() -> None:
    message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    ended = container(lastState={"terminated": {"exitCode": 1, "message": message}})

    state = judge_pods([placed(containerStatuses=[ended])])

    assert state.final
    assert state.problem == "container ome-container of pod s-engine-0 ran out of GPU memory"
