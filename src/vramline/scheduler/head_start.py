"""A head start for hints: kube-scheduler waits at a filter while pods behind it are being told their nodes.

Left alone, it overtakes the hints: it takes a pod that has none yet and looks at all nodes for it, which at
thousands of nodes costs more than the hints of many pods. It tries one pod at a time, so an answer that comes
a little later holds up none but the pods that gain by it. A wait is bounded, ends as soon as nobody is left
to be told, and after one that brought little there is none for a while.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from vramline.telemetry.tallies import Happening, Tallies

__all__ = ["HeadStart"]

_FEW = 8
"""With fewer told pods than this before it, kube-scheduler is about to overtake."""
_ENOUGH = 120
"""With so many it may go on: about as many are told while it takes these."""
_MOST_S = 1.0
_WORTH_IT = 20
"""Hints that the longest wait must bring: for fewer pods kube-scheduler looks at all nodes in less time."""
_STILL_COMING_S = 0.05
"""How long after the last new pod a burst counts as going on."""
_RECENT_S = 1.0
"""Hints are under way if the last one was stored no longer ago than this."""
_NOT_AGAIN_S = 10.0


class HeadStart:
    """Who was told and is still to be tried, and when kube-scheduler should wait for more of them."""

    def __init__(self, arrivals: Callable[[], int], tallies: Tallies, *, clock: Callable[[], float]) -> None:
        """`arrivals` counts the pods that ever came; `clock` measures durations: it must never jump."""
        self._arrivals = arrivals
        self._tallies = tallies
        self._clock = clock
        self._told: set[str] = set()
        self._told_at = -math.inf
        self._not_before = -math.inf
        self._progress = asyncio.Event()
        self.wanted = asyncio.Event()
        """Set while kube-scheduler waits."""

    def told(self, pod_uid: str) -> None:
        """A pod's hint is stored."""
        self._told.add(pod_uid)
        self._told_at = self._clock()
        self._progress.set()

    def tried(self, pod_uid: str) -> None:
        """Kube-scheduler has come to a pod."""
        self._told.discard(pod_uid)

    def keep(self, pods: AbstractSet[str]) -> None:
        """Forget all but these: the others are bound, gone, or nominated elsewhere."""
        self._told &= pods

    def is_under_way(self) -> bool:
        """Whether a hint was stored a moment ago."""
        return self._clock() - self._told_at < _RECENT_S

    async def wait(self, *, told: bool, owed: Callable[[], bool]) -> None:
        """Wait at a pod's filter until hints are far enough ahead; `told`: this pod needs none, or has one.

        `owed` says whether pods are still to come that could be told. If kube-scheduler came to a pod without
        a hint, it takes the pods in another order than they are told in: then it waits until all are.
        """
        now, enough = self._clock(), _ENOUGH if told else math.inf
        if not self.is_under_way() or now < self._not_before or (told and len(self._told) >= _FEW):
            return
        self.wanted.set()
        try:
            how = await self._wait(enough, owed)
        finally:
            self.wanted.clear()
        self._tallies.count(Happening.HELD, how)

    async def _wait(self, enough: float, owed: Callable[[], bool]) -> str:
        started = came_at = self._clock()
        before, came = len(self._told), self._arrivals()
        while len(self._told) < enough:
            now, arrivals = self._clock(), self._arrivals()
            if arrivals != came:
                came, came_at = arrivals, now
            if not owed() and now - came_at >= _STILL_COMING_S:
                return "nobody left"
            if now - started >= _MOST_S:
                if len(self._told) - before >= _WORTH_IT:
                    break
                self._not_before = now + _NOT_AGAIN_S
                return "in vain"
            self._progress.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._progress.wait(), _STILL_COMING_S)
        return "ahead"
