"""How far a service has got."""

from typing import Any

import pytest

from vramline.inference.service_state import ServiceState, judge_pods, judge_service

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

    assert judge_pods([pod(containerStatuses=[waiting]), {}]) == NOTHING


def test_what_cannot_pass_by_itself_is_said_first() -> None:
    stuck = pod(conditions=[{"type": "PodScheduled", "reason": "Unschedulable"}])
    crashed = pod(containerStatuses=[container(state={"waiting": {"reason": "CrashLoopBackOff"}})])

    assert judge_pods([stuck, crashed]).final
