"""A call that hangs holds its lane, and nobody else."""

import asyncio
import threading

import pytest

from vramline.agent.lane import Lane, LateError
from vramline.errors import TransientError


def test_a_call_runs_in_another_thread() -> None:
    assert asyncio.run(Lane("test").run(threading.current_thread, limit_s=5)).name == "test"


def test_what_a_call_raises_is_raised() -> None:
    def fail() -> None:
        raise TransientError("no")

    with pytest.raises(TransientError, match="no"):
        asyncio.run(Lane("test").run(fail, limit_s=5))


def test_a_late_result_is_thrown_away_and_the_lane_is_free_again() -> None:
    async def story() -> tuple[list[str], str]:
        lane, release, problems = Lane("test"), threading.Event(), []
        for call in (release.wait, lambda: True):
            try:
                await lane.run(call, limit_s=0.05)
            except LateError as error:
                problems.append(str(error))
        release.set()
        return problems, await lane.run(lambda: "new", limit_s=5)

    problems, answer = asyncio.run(story())

    assert problems == ["no answer within 0.05 s"] * 2
    assert answer == "new"


def test_a_mistake_in_a_call_does_not_break_the_lane() -> None:
    async def story() -> int:
        lane = Lane("test")
        with pytest.raises(TransientError, match="ZeroDivisionError: integer division"):
            await lane.run(lambda: 1 // 0, limit_s=5)
        return await lane.run(lambda: 5, limit_s=5)

    assert asyncio.run(story()) == 5
