"""When a sample was taken, by our own clock.

Its age on sending is told by the agent; how long it was on its way is not. But frames of one stream carry the
agent's clock too. Its distance from ours is about constant, and the smallest that was seen lately belongs to
the fastest frame; a frame that shows a larger distance was that much longer on its way.
"""

import math

__all__ = ["StreamClock"]

_WINDOW_S = 60.0
_STEP_S = 30.0
"""No frame is on its way for so long before the stream is given up: the agent's clock was set instead."""


class StreamClock:
    """Dates the frames of one stream."""

    def __init__(self) -> None:
        self._window = -1.0
        self._least = self._least_before = math.inf

    def date(self, *, received_at: float, age_s: float, told: float | None) -> float:
        """Return when a sample was taken, never later than its age says. `told` is by the agent's clock."""
        latest = received_at - age_s
        if told is None:
            return latest
        distance = latest - told
        window = received_at // _WINDOW_S
        if window != self._window:
            self._window, self._least_before, self._least = window, self._least, distance
        self._least = min(self._least, distance)
        at = told + min(self._least, self._least_before)
        if latest - at > _STEP_S:
            self._least, self._least_before = distance, math.inf
            return latest
        return at
