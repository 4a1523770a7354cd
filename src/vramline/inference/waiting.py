"""When waiting for a service is over: it is ready, it never will be, or nobody has more time."""

from collections.abc import Callable

from vramline.inference.service_state import ServiceState

__all__ = ["Waiting"]

_STUCK_S = 20.0
"""How long a pod may be unschedulable: long enough for memory that is being released, and for retries."""


class Waiting:
    """One wait. It is told what was seen, and says what follows."""

    def __init__(self, *, timeout_s: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._until = clock() + timeout_s
        self._stuck_since: float | None = None
        self._told: tuple[str, str, str] | None = None

    def look(self, state: ServiceState) -> tuple[ServiceState, bool]:
        """Take in what was seen; return it, and whether it says something new."""
        if not state.stuck:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = self._clock()
        told = (state.stage, state.detail, state.problem)
        changed, self._told = told != self._told, told
        return state, changed

    def verdict(self, state: ServiceState, *, next_look_s: float) -> str | None:
        """Return None to look again, else why not: empty for a service that is ready."""
        if state.ready:
            return ""
        stuck_s = 0.0 if self._stuck_since is None else self._clock() - self._stuck_since
        if state.final or stuck_s >= _STUCK_S:
            return state.problem
        if self._clock() + next_look_s > self._until:
            return state.problem or f"not ready after {self._timeout_s:g} s"
        return None
