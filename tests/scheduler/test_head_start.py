"""When kube-scheduler waits at a filter so that hints get ahead of it, and when it does not."""

import asyncio
from collections.abc import Callable

import pytest

from vramline.scheduler.head_start import HeadStart
from vramline.telemetry.tallies import Happening, Tallies


class Burst:
    """Pods that come and are told; its clock goes a step every time somebody asks who is left."""

    def __init__(self, *, owed: int, told: int = 1, step_s: float = 0.0) -> None:
        self.now = 0.0
        self.owed = owed
        self.arrivals = 0
        self.step_s = step_s
        self.tallies = Tallies()
        self.head_start = HeadStart(lambda: self.arrivals, self.tallies, clock=lambda: self.now)
        self.asked = 0
        self.each_time: Callable[[], None] = lambda: None
        for number in range(told):
            self.head_start.told(f"before-{number}")

    def tell(self, pods: int) -> None:
        for _ in range(pods):
            self.owed -= 1
            self.head_start.told(f"uid-{self.owed}")

    def is_owed(self) -> bool:
        self.asked += 1
        self.now += self.step_s
        self.each_time()
        return self.owed > 0

    def wait(self, *, told: bool) -> str:
        """Wait, and say how that ended; empty: nobody waited."""
        asyncio.run(self.head_start.wait(told=told, owed=self.is_owed))
        ends = ("ahead", "nobody left", "in vain")
        return next((end for end in ends if self.tallies.of(Happening.HELD, end)), "")


def test_who_has_a_hint_waits_until_many_more_have_one() -> None:
    burst = Burst(owed=1_000, step_s=0.001)
    burst.each_time = lambda: burst.tell(17)

    assert burst.wait(told=True) == "ahead"
    assert burst.owed == 1_000 - 7 * 17  # 120 are enough, and one was told before


def test_who_comes_to_a_pod_without_a_hint_waits_until_all_have_one() -> None:
    burst = Burst(owed=170, told=60, step_s=0.01)
    burst.each_time = lambda: burst.tell(min(burst.owed, 17))

    assert burst.wait(told=False) == "nobody left"
    assert burst.owed == 0


def test_a_burst_goes_on_for_a_moment_after_the_last_pod_came() -> None:
    burst = Burst(owed=0, step_s=0.01)
    came_at: list[float] = []

    def come() -> None:
        if len(came_at) < 4:
            came_at.append(burst.now)
            burst.arrivals += 1

    burst.each_time = come

    assert burst.wait(told=True) == "nobody left"
    assert burst.now - came_at[-1] >= 0.05


@pytest.mark.parametrize(("told_each_time", "how"), [(4, "ahead"), (3, "in vain")])
def test_a_wait_ends_after_a_second_whatever_is_left(told_each_time: int, how: str) -> None:
    burst = Burst(owed=1_000, step_s=0.2)
    burst.each_time = lambda: burst.tell(told_each_time)

    assert burst.wait(told=False) == how
    assert burst.asked == 6


def test_after_a_wait_in_vain_there_is_none_for_a_while() -> None:
    burst = Burst(owed=5, step_s=0.2)

    async def story() -> None:
        await burst.head_start.wait(told=False, owed=burst.is_owed)
        assert burst.tallies.of(Happening.HELD, "in vain") == 1
        asked = burst.asked

        burst.head_start.told("one at last")
        await burst.head_start.wait(told=False, owed=burst.is_owed)
        assert burst.asked == asked

        burst.now += 10.0
        burst.head_start.told("another")
        await burst.head_start.wait(told=False, owed=burst.is_owed)
        assert burst.asked > asked

    asyncio.run(story())


@pytest.mark.parametrize(
    ("ahead", "later_s", "told"),
    [
        pytest.param(0, 0.0, False, id="nobody was ever told"),
        pytest.param(3, 1.0, False, id="the last hint is long ago"),
        pytest.param(8, 0.0, True, id="hints are ahead"),
    ],
)
def test_nobody_waits_where_hints_are_not_being_written_or_are_ahead(
    ahead: int, later_s: float, *, told: bool
) -> None:
    burst = Burst(owed=100, told=ahead)
    burst.now += later_s

    assert burst.wait(told=told) == ""
    assert burst.asked == 0


def test_pods_that_were_tried_or_are_gone_are_not_ahead() -> None:
    burst = Burst(owed=0, told=9, step_s=0.06)
    burst.head_start.tried("before-0")
    assert burst.wait(told=True) == ""

    burst.head_start.keep({"before-1", "before-2", "somebody"})

    assert burst.wait(told=True) == "nobody left"


def test_it_is_known_that_somebody_waits_only_while_he_does() -> None:
    burst = Burst(owed=1, step_s=0.01)

    async def story() -> None:
        waiting = asyncio.create_task(burst.head_start.wait(told=False, owed=burst.is_owed))
        await asyncio.wait_for(burst.head_start.wanted.wait(), 60.0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert not burst.head_start.wanted.is_set()

    asyncio.run(story())
