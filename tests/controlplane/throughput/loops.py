"""The benchmark's own work beside what it measures, on the quickest loop there is: the cores are shared."""

import asyncio
from collections.abc import Coroutine

import uvloop

__all__ = ["run_quickly"]


def run_quickly(work: Coroutine[None, None, None]) -> None:
    """Run until it is done."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)
