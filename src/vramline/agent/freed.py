"""Stamps the Node when memory became free that a waiting pod may want."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import structlog

from vramline.kube.pace import Pace, delay_s

__all__ = ["Stamper"]

_WAKES_APART_S = 0.5
_OWN_APART_S = 10.0
"""Every stamp makes kube-scheduler try all pods again that were refused: without being asked, not often."""
_SETTLED_AFTER_S = 1.5
"""The scheduler lets go of memory within a second of the report that proves it free; a pod that is tried
before that is refused once more, and then nothing tries it again."""


class Stamper:
    """One stamp at a time, not too often, and again after a failure."""

    def __init__(
        self, stamp: Callable[[], Awaitable[bool]], *, clock: Callable[[], float], rng: random.Random
    ) -> None:
        self._stamp = stamp
        self._clock = clock
        self._rng = rng
        self._wanted = asyncio.Event()
        self._not_before = float("-inf")
        self._last = float("-inf")
        self.stamps = 0

    def wake(self) -> None:
        """A scheduler says that it matters now."""
        self._want(self._last + _WAKES_APART_S)

    def notice(self) -> None:
        """The agent itself saw memory become free, and has nobody to ask whether it matters."""
        self._want(max(self._last + _OWN_APART_S, self._clock() + _SETTLED_AFTER_S))

    def _want(self, due: float) -> None:
        self._not_before = min(self._not_before, due) if self._wanted.is_set() else due
        self._wanted.set()

    async def run(self) -> None:
        """Stamp for ever."""
        pace, failures = Pace(first_s=0.5, most_s=10.0), 0
        while True:
            await self._wanted.wait()
            if (wait_s := self._not_before - self._clock()) > 0:
                await asyncio.sleep(min(wait_s, _WAKES_APART_S))
                continue
            self._wanted.clear()
            self._last = self._clock()
            if await self._stamp():
                self.stamps, failures = self.stamps + 1, 0
                structlog.get_logger().info("node.stamped")
            else:
                failures += 1
                await asyncio.sleep(delay_s(pace, failures, self._rng))
                self._wanted.set()
