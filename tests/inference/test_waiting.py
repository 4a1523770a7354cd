"""When waiting for a service is over."""

from vramline.inference.service_state import ServiceState, Stage
from vramline.inference.waiting import Waiting

UNSCHEDULABLE = ServiceState(ready=False, problem="short by 9 MiB", stuck=True)
LOADING = ServiceState(ready=False, problem="", stage=Stage.LOADING)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_service_that_is_ready_ends_the_wait_without_a_problem() -> None:
    waiting = Waiting(timeout_s=60, clock=Clock())

    assert waiting.verdict(ServiceState(ready=True, problem=""), next_look_s=10) == ""


def test_what_cannot_become_better_ends_it_at_once() -> None:
    waiting = Waiting(timeout_s=60, clock=Clock())

    assert waiting.verdict(ServiceState(ready=False, problem="OOM", final=True), next_look_s=10) == "OOM"


def test_a_pod_that_stays_unschedulable_ends_it_after_a_while() -> None:
    clock = Clock()
    waiting = Waiting(timeout_s=600, clock=clock)
    verdicts = []

    for _ in range(4):
        state, _ = waiting.look(UNSCHEDULABLE)
        verdicts.append(waiting.verdict(state, next_look_s=10))
        clock.now += 10

    assert verdicts == [None, None, "short by 9 MiB", "short by 9 MiB"]


def test_a_pod_that_was_unschedulable_in_between_starts_anew() -> None:
    clock = Clock()
    waiting = Waiting(timeout_s=600, clock=clock)
    for state in (UNSCHEDULABLE, LOADING, UNSCHEDULABLE):
        waiting.look(state)
        clock.now += 15

    assert waiting.verdict(UNSCHEDULABLE, next_look_s=10) is None


def test_who_has_no_more_time_says_what_is_known() -> None:
    clock = Clock()
    waiting = Waiting(timeout_s=60, clock=clock)
    clock.now += 55

    assert waiting.verdict(LOADING, next_look_s=10) == "not ready after 60 s"
    assert waiting.verdict(UNSCHEDULABLE, next_look_s=10) == "short by 9 MiB"


def test_only_what_is_new_is_told() -> None:
    waiting = Waiting(timeout_s=60, clock=Clock())

    told = [waiting.look(state)[1] for state in (LOADING, LOADING, UNSCHEDULABLE, LOADING)]

    assert told == [True, False, True, True]
