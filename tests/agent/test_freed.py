"""Stamping the Node: at once when asked, sparingly without, and again after a failure."""

import asyncio
import random

from vramline.agent.freed import Stamper


class World:
    """A stamper on a clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.at: list[float] = []
        self.fails = 0
        self.stamper = Stamper(self.stamp, clock=lambda: self.now, rng=random.Random(7))

    async def stamp(self) -> bool:
        if self.fails:
            self.fails -= 1
            return False
        self.at.append(self.now)
        return True


def play(*steps: tuple[float, str], stamps: int, fails: int = 0) -> list[float]:
    """Move the clock and ask, step by step; return the times of the stamps, of which so many are due."""
    world = World()
    world.fails = fails

    async def run() -> None:
        running = asyncio.create_task(world.stamper.run())
        for at, what in steps:
            world.now = at
            if what:
                getattr(world.stamper, what)()
            for _ in range(20):
                await asyncio.sleep(0)
        async with asyncio.timeout(10):
            while len(world.at) < stamps:  # noqa: ASYNC110 — what it waits for knows nothing of events
                await asyncio.sleep(0.01)
        running.cancel()

    asyncio.run(run())
    return world.at


def test_who_is_asked_to_wake_stamps_at_once() -> None:
    assert play((100.0, "wake"), (101.0, "wake"), stamps=2) == [100.0, 101.0]


def test_without_being_asked_ten_seconds_are_between() -> None:
    assert play((100.0, "wake"), (105.0, "notice"), (109.9, ""), stamps=1) == [100.0]
    assert play((100.0, "wake"), (105.0, "notice"), (110.0, ""), stamps=2) == [100.0, 110.0]


def test_without_being_asked_the_scheduler_gets_the_time_to_let_go_first() -> None:
    assert play((100.0, "notice"), (101.4, ""), stamps=0) == []
    assert play((100.0, "notice"), (101.5, ""), stamps=1) == [101.5]


def test_a_wake_does_not_wait_for_an_own_stamp_that_is_not_due() -> None:
    assert play((100.0, "wake"), (105.0, "notice"), (106.0, "wake"), stamps=2) == [100.0, 106.0]


def test_a_failed_stamp_is_tried_again() -> None:
    assert play((100.0, "wake"), (102.0, ""), stamps=1, fails=1) == [102.0]
