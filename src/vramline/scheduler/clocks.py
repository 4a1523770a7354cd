"""Time that nobody can set: what durations are measured with, and how other machines' times become it.

Times in API objects come from clocks of other machines, which may be wrong and may be set at any moment; so
may our own. They are compared only after they were brought to our steady clock, in a way that never makes
memory free earlier nor a look at a card younger than it is.
"""

import time
from collections.abc import Callable

import msgspec

from vramline.model.pod import Pod
from vramline.wire.report_v1alpha1 import GpuReport

__all__ = ["PodMoments", "ReportClock", "SteadyClock"]

_WINDOW_S = 60.0
_FUTURE_S = 5.0
"""So far ahead of ours a clock may be before what it says of the past means nothing."""
_LATE_S = 10.0
"""So long before we hear of it a container may have ended or started, at most; else it is taken for that."""


def _seconds_since_boot() -> float:
    """A clock that never jumps, and that goes on while the machine sleeps where there is such a one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SteadyClock:
    """Seconds since the epoch as the wall clock said at the start; from then on counted, never read again."""

    def __init__(
        self, wall: Callable[[], float] = time.time, elapsed: Callable[[], float] = _seconds_since_boot
    ) -> None:
        self._elapsed = elapsed
        self._start = wall() - elapsed()

    def __call__(self) -> float:
        """Return the time now."""
        return self._start + self._elapsed()


class _NodeClock:
    """What is known of one node's clock: how far it lies behind ours."""

    __slots__ = ("at", "least", "least_before", "told", "window")

    def __init__(self, told: float, at: float) -> None:
        self.told, self.at = told, at
        self.window = -1.0
        self.least = self.least_before = float("inf")

    def learn(self, told: float, now: float) -> float:
        """Return when a report that has just been written was made, by our clock.

        The distance of the clocks is about constant, and the smallest of the last minute or two belongs to
        the report that came fastest; one that shows a larger distance was that much longer on its way. A
        clock that was set back makes its reports look old until then.
        """
        window, distance = now // _WINDOW_S, now - told
        if window != self.window:
            self.window, self.least_before, self.least = window, self.least, distance
        self.least = min(self.least, distance)
        self.told, self.at = told, min(now, told + min(self.least, self.least_before))
        return self.at


class ReportClock:
    """Dates the reports of all nodes."""

    def __init__(self, *, max_age_s: float) -> None:
        self._max_age_s = max_age_s
        self._nodes: dict[str, _NodeClock] = {}

    def date(self, report: GpuReport, *, now: float) -> GpuReport:
        """Return a report that was made when it says by our clock; the same one again is as old as it was.

        A node's first report may have been there for long: it is as old as it says. One from the future says
        nothing, so it counts as too old; the next one tells how far the clocks are apart.
        """
        told, known = report.observed_at, self._nodes.get(report.node)
        if told is None:
            return report
        if known is None:
            at = now - self._max_age_s - 1.0 if told > now + _FUTURE_S else min(told, now)
            known = self._nodes[report.node] = _NodeClock(told, at)
        at = known.at if told == known.told else known.learn(told, now)
        return report if at == told else msgspec.structs.replace(report, observed_at=at)

    def forget(self, node: str) -> None:
        """A node's report was deleted."""
        self._nodes.pop(node, None)


class PodMoments:
    """When containers started and ended, by our clock."""

    def __init__(self) -> None:
        self._waiting: set[str] = set()
        self._started: dict[str, float] = {}
        self._ended: dict[str, float] = {}

    def date(self, pod: Pod, *, now: float) -> Pod:
        """Return a pod whose times are ours.

        It ended when we heard of it first, or shortly before if its node says so: what the node's clock says
        may be an hour off. The same holds for a start that we saw; what ran before we looked started when it
        says.
        """
        started, ended = pod.started_at, pod.ended_at
        if started is None:
            self._waiting.add(pod.uid)
        elif pod.uid in self._waiting:
            started = self._started.setdefault(pod.uid, _heard(started, now))
        if ended is None:
            self._ended.pop(pod.uid, None)
        else:
            ended = self._ended.setdefault(pod.uid, _heard(ended, now))
        if (started, ended) == (pod.started_at, pod.ended_at):
            return pod
        return msgspec.structs.replace(pod, started_at=started, ended_at=ended)

    def date_new(self, pods: dict[str, Pod], *, now: float) -> None:
        """Do the same for pods that were not known, in their place; what runs says itself since when."""
        for uid, pod in pods.items():
            if pod.started_at is None or pod.ended_at is not None or uid in self._waiting:
                pods[uid] = self.date(pod, now=now)

    def forget(self, uid: str) -> None:
        """A pod's object is gone."""
        self._waiting.discard(uid)
        self._started.pop(uid, None)
        self._ended.pop(uid, None)


def _heard(told: float, now: float) -> float:
    return max(now - _LATE_S, min(told, now))
