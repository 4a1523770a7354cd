"""A thread for calls that may never come back.

A call into a driver that hangs cannot be ended: not in a thread, and not in a child process either, which
would wait in the kernel just the same, survive SIGKILL and cost an interpreter of its own. So calls run in a
daemon thread that is left alone when it does not answer. A lane never starts a second call while one is
outstanding: there are never more threads than lanes, and a driver that wakes up finds its lane in order.
"""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, TypeVar

__all__ = ["Lane", "LaneTimeoutError", "Outcome"]

T = TypeVar("T")
_Calls = queue.SimpleQueue[tuple[Callable[[], Any], "Future[Any]"] | None]


class LaneTimeoutError(Exception):
    """The call did not come back in time, or the one before it has not come back yet."""


class Outcome(Generic[T]):
    """A call that was handed to a lane."""

    def __init__(self, future: "Future[T] | None", since: float) -> None:
        self._future = future
        self._since = since

    def wait(self, until: float) -> T:
        """Return what the call returned or raise what it raised; `until` is a time of `time.monotonic`."""
        if self._future is None:
            waited = time.monotonic() - self._since
            raise LaneTimeoutError(f"a call that began {waited:.1f} s ago still hangs")
        try:
            return self._future.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            if self._future.done():
                raise  # the call's own
            waited = time.monotonic() - self._since
            raise LaneTimeoutError(f"no answer within {waited:.1f} s") from None


class Lane:
    """One call at a time, in a thread that starts with the first."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: _Calls = queue.SimpleQueue()
        self._door = threading.Lock()
        """Held while a call is handed over or the thread let go: no call may end up behind the last one."""
        self._last: Future[Any] | None = None
        self._since = 0.0
        self._thread: threading.Thread | None = None

    @property
    def is_hung(self) -> bool:
        """Whether a call is still outstanding."""
        return self._last is not None and not self._last.done()

    def begin(self, call: Callable[[], T]) -> Outcome[T]:
        """Hand over a call. Where the one before is still outstanding it is not made at all."""
        with self._door:
            if self.is_hung:
                return Outcome(None, self._since)
            if self._thread is None:
                self._calls = queue.SimpleQueue()
                self._thread = threading.Thread(
                    target=_work, args=(self._calls,), name=self._name, daemon=True
                )
                self._thread.start()
            future: Future[T] = Future()
            self._last, self._since = future, time.monotonic()
            self._calls.put((call, future))
            return Outcome(future, self._since)

    def run(self, call: Callable[[], T], timeout_s: float) -> T:
        """Make a call and wait for it. Raises `LaneTimeoutError`."""
        return self.begin(call).wait(time.monotonic() + timeout_s)

    def close(self) -> None:
        """Let the thread end, at once or when its call comes back."""
        with self._door:
            if self._thread is not None:
                self._calls.put(None)
                self._thread = None


def _work(calls: _Calls) -> None:
    while (handed := calls.get()) is not None:
        call, future = handed
        with _Delivery(future):
            future.set_result(call())


class _Delivery:
    """Hands whatever is raised inside to whoever waits for the call."""

    def __init__(self, future: "Future[Any]") -> None:
        self._future = future

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is not None:
            self._future.set_exception(error)
        return True
