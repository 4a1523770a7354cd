"""Clocks that are set, forwards and backwards: nothing becomes free early, nothing old becomes young."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetes_builders import node_object, pod_object, report
from vramline.model.pod import Pod, PodPhase
from vramline.model.rules import Rules
from vramline.scheduler.clocks import PodMoments, ReportClock, SteadyClock
from vramline.scheduler.live import LiveState
from vramline.wire import keys
from vramline.wire.report_v1alpha1 import GpuReport
from vramline.wire.times import format_time

HOUR = 3_600.0
MAX_AGE_S = 90.0
SEAL = '{"node": "n1", "gpus": [{"uuid": "GPU-n1", "mib": 8000}], "ledgerVersion": 1}'


def test_a_steady_clock_starts_with_the_wall_clock_and_never_looks_at_it_again() -> None:
    wall, elapsed = [1_000.0], [7.0]
    clock = SteadyClock(lambda: wall[0], lambda: elapsed[0])
    wall[0] += HOUR
    elapsed[0] += 2.0

    assert clock() == 1_002.0


def dated(clock: ReportClock, told: float, now: float) -> float:
    """When a report was made, as far as we know."""
    found = clock.date(GpuReport(node="n1", observed_at=told), now=now).observed_at
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("told", "age"),
    [(1_000.0, 0.0), (400.0, 600.0), (1_003.0, 0.0), (1_000.0 + HOUR, MAX_AGE_S + 1)],
    ids=["just now", "as old as it says", "a little ahead of us", "from the future: it says nothing"],
)
def test_how_old_the_first_report_of_a_node_is(told: float, age: float) -> None:
    assert 1_000.0 - dated(ReportClock(max_age_s=MAX_AGE_S), told, 1_000.0) == age


@pytest.mark.parametrize("offset", [HOUR, -HOUR, 20.0], ids=["ahead", "behind", "a little off"])
def test_a_report_that_comes_while_we_watch_is_as_young_as_it_is_by_any_clock(offset: float) -> None:
    clock = ReportClock(max_age_s=MAX_AGE_S)
    dated(clock, 1_000.0 + offset, 1_000.0)

    assert dated(clock, 1_030.0 + offset, 1_030.5) == 1_030.5


def test_a_report_that_was_long_on_its_way_is_as_old_as_that() -> None:
    clock = ReportClock(max_age_s=MAX_AGE_S)
    for second in range(0, 120, 30):
        dated(clock, HOUR + second, 0.0 + second)

    assert dated(clock, HOUR + 120.0, 400.0) == 120.0


def test_the_same_report_read_again_does_not_become_younger() -> None:
    clock = ReportClock(max_age_s=MAX_AGE_S)
    first = dated(clock, 1_000.0, 1_001.0)

    assert dated(clock, 1_000.0, 5_000.0) == first


@given(
    delays=st.lists(st.floats(0.0, 5.0), min_size=12, max_size=30),
    jumps=st.dictionaries(st.integers(1, 29), st.sampled_from([HOUR, -HOUR, 90.0, -90.0]), max_size=3),
)
def test_however_a_nodes_clock_is_set_no_report_is_from_the_future_and_each_is_believed_again_soon(
    delays: list[float], jumps: dict[int, float]
) -> None:
    clock, offset, since_jump = ReportClock(max_age_s=MAX_AGE_S), 0.0, 0
    for number, delay in enumerate(delays):
        offset += jumps.get(number, 0.0)
        since_jump = 0 if number in jumps else since_jump + 1
        made_at = 30.0 * number
        now = made_at + delay
        at = dated(clock, made_at + offset, now)
        assert at <= now
        assert at <= made_at + max(delays)
        if since_jump > 4:
            assert now - at <= max(delays) + 0.001


def ended(at: float, uid: str = "u") -> Pod:
    return Pod(namespace="ns", name="p", uid=uid, phase=PodPhase.RELEASING, started_at=0.0, ended_at=at)


@pytest.mark.parametrize(
    ("told", "ours"),
    [(998.0, 998.0), (1_000.0 - HOUR, 990.0), (1_000.0 + HOUR, 1_000.0)],
    ids=["shortly before we heard", "an hour ago", "in an hour"],
)
def test_a_pod_ended_shortly_before_we_heard_of_it_whatever_its_node_says(told: float, ours: float) -> None:
    moments = PodMoments()

    assert moments.date(ended(told), now=1_000.0).ended_at == ours
    assert moments.date(ended(told), now=2_000.0).ended_at == ours, "heard again is not heard first"


def test_a_start_that_we_saw_was_shortly_before_we_heard_of_it() -> None:
    moments, waits = PodMoments(), Pod(namespace="ns", name="p", uid="u", phase=PodPhase.BOUND)
    moments.date(waits, now=900.0)
    runs = msgspec.structs.replace(waits, phase=PodPhase.RUNNING, started_at=1_000.0 - HOUR)

    assert moments.date(runs, now=1_000.0).started_at == 990.0


def test_what_ran_before_we_looked_started_when_it_says() -> None:
    assert PodMoments().date(ended(5_000.0), now=1_000.0).started_at == 0.0


class World:
    """One node whose clock can be set, a pod on its card, and our state of it."""

    def __init__(self, offset: float) -> None:
        self.elapsed = 1_000_000.0
        self.offset = offset
        """How far the node's clock is ahead."""
        self.live = LiveState(Rules(), clock=lambda: self.elapsed, release_grace_s=60.0)
        self.report()
        self.live.set_node(node_object("n1"))
        self._pod({"phase": "Running"})
        self.live.finish_listing_pods()

    @property
    def held(self) -> int:
        self.live.settle()
        return self.live.fleet.account("GPU-n1").claimed

    def report(self) -> None:
        card = {"uuid": "GPU-n1", "index": 0, "totalMiB": 32_600, "usedMiB": 0, "processes": []}
        self.live.set_report(report(card, observedAt=format_time(self.elapsed + self.offset)))

    def end(self) -> None:
        """Its container ends, and we hear of it at once."""
        state = {"terminated": {"finishedAt": format_time(self.elapsed + self.offset)}}
        self._pod({"phase": "Running", "containerStatuses": [{"name": "main", "state": state}]}, gone=True)

    def _pod(self, status: dict[str, object], *, gone: bool = False) -> None:
        meta = (
            {"uid": "u", "deletionTimestamp": format_time(self.elapsed + self.offset)}
            if gone
            else {"uid": "u"}
        )
        told = {keys.VRAM: "8000", keys.ALLOCATION: SEAL}
        self.live.set_pod(pod_object(annotations=told, meta=meta, nodeName="n1", status=status))


OFFSETS = [0.0, HOUR, -HOUR]


@pytest.mark.parametrize("before", OFFSETS)
@pytest.mark.parametrize("after", OFFSETS)
def test_memory_is_held_until_a_newer_look_and_no_longer_than_that_however_the_clock_is_set(
    before: float, after: float
) -> None:
    world = World(before)
    world.elapsed += 30.0
    world.report()
    world.elapsed += 30.0
    world.offset = after
    world.end()
    assert world.held == 8_000, "an older look is no proof"

    world.elapsed += 5.0
    world.offset = before
    assert world.held == 8_000
    for _ in range(6):
        world.elapsed += 30.0
        world.offset = after
        world.report()
    assert world.held == 0


@pytest.mark.parametrize("offset", OFFSETS)
def test_without_an_agent_the_grace_period_is_as_long_as_it_is_set_by_any_clock(offset: float) -> None:
    world = World(offset)
    world.elapsed += 10 * MAX_AGE_S
    world.end()
    world.elapsed += 49.0
    assert world.held == 8_000

    world.elapsed += 12.0
    assert world.held == 0
