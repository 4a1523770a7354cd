"""Waking: kube-scheduler tries a refused pod again when an object changes, and free memory is no object.

When memory becomes free without any change of a Kubernetes object, and a pod that waits would fit now, the
bell is rung. Every ring makes kube-scheduler try all refused pods again, so it is rung only where it matters,
and at most twice a second.
"""

import asyncio
import time
from collections.abc import Callable, Iterator

import structlog

from vramline.decide.engine import decide
from vramline.model.ask import Ask
from vramline.scheduler.bell import Bell
from vramline.scheduler.live import LiveState
from vramline.scheduler.waiting import WaitingPods
from vramline.telemetry.tallies import Happening, Tallies

__all__ = ["Waker"]

_EVERY_S = 0.2
_APART_S = 0.5
_MOST_DECISIONS = 100
"""How many questions are asked at once; the rest comes with the next turn."""


class Waker:
    """Rings for a leader."""

    def __init__(self, live: LiveState, bell: Bell, waiting: WaitingPods, tallies: Tallies) -> None:
        self._live = live
        self._bell = bell
        self._waiting = waiting
        self._tallies = tallies
        self._questions: Iterator[tuple[str, Ask]] = iter(())
        self._owes = False
        """Whether a ring failed that is due still."""

    async def run(self, stop: asyncio.Event, leads: Callable[[], bool]) -> None:
        """Look whether somebody should be woken, until `stop`."""
        rang_at = -_APART_S
        while not stop.is_set():
            if not leads():
                self._live.sightings.freed.clear()
            elif time.monotonic() - rang_at >= _APART_S and await self.wake():
                rang_at = time.monotonic()
            await asyncio.sleep(_EVERY_S)

    async def wake(self) -> bool:
        """Ring if that lets a pod in; once is enough for all pods that wait. Return whether it was tried."""
        node = self._find()
        if node is None and not self._owes:
            return False
        rang = await self._bell.ring(time.time())
        self._owes = not rang
        self._tallies.count(Happening.WAKES, "sent" if rang else "failed")
        structlog.get_logger().debug("pods.woken", freed=node, rang=rang)
        return True

    def _find(self) -> str | None:
        """Return a node on which something became free that a waiting pod can use now."""
        for _ in range(_MOST_DECISIONS):
            question = next(self._questions, None) or self._ask_anew()
            if question is None:
                return None
            node, ask = question
            pod = self._live.pods.get(ask.pod_uid)
            if pod is None or self._live.fleet.node(node) is None:
                continue
            rules, view = self._live.rules_for(ask), self._live.view_of(node, pod)
            if decide(view, ask, rules, now=self._live.now()).placement is not None:
                self._questions = iter(())
                return node
        return None

    def _ask_anew(self) -> tuple[str, Ask] | None:
        """Take up the nodes on which something became free since the last time."""
        freed = sorted(self._live.sightings.freed)
        self._live.sightings.freed.clear()
        asks = self._waiting.still_waiting(self._live.pods) if freed else []
        self._questions = iter([(node, ask) for node in freed for ask in asks])
        return next(self._questions, None)
