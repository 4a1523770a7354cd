"""A thread for calls that may hang: whoever hangs holds the lane, not the agent."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from vramline.errors import TransientError, VramlineError

__all__ = ["Lane", "LateError"]

T = TypeVar("T")
_Call = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class LateError(TransientError):
    """The call did not come back in time. It may still be under way; its result will be thrown away."""


class Lane:
    """Runs one call at a time, in a thread that does not keep the process from ending."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._running: asyncio.Future[Any] | None = None

    async def run(self, call: Callable[[], T], *, limit_s: float) -> T:
        """Return the result, or raise what the call raised; raises `LateError` after `limit_s`.

        Waiting for a call that was there before counts. A mistake in the call is a `TransientError` too: a
        probe may be somebody else's, and must not end the agent.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit_s):
                while self._running is not None and not self._running.done():
                    await asyncio.wait([self._running])
                future: asyncio.Future[T] = loop.create_future()
                future.add_done_callback(_look_at)
                self._running = future
                self._start_thread()
                self._calls.put((call, future, loop))
                return await asyncio.shield(future)
        except TimeoutError:
            raise LateError(f"no answer within {limit_s:g} s") from None

    def close(self) -> None:
        """Let the thread end after the call it is in."""
        self._calls.put(None)

    def _start_thread(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            call, future, loop = item
            result: Any = None
            with _Caught() as caught:
                result = call()
            with contextlib.suppress(RuntimeError):  # the loop is closed: the agent has stopped
                loop.call_soon_threadsafe(_deliver, future, result, caught.problem)


class _Caught:
    """Keeps whatever is raised inside, for whoever waits for the call: nobody waits for ever."""

    def __init__(self) -> None:
        self.problem: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.problem = error
        return True


def _deliver(future: "asyncio.Future[Any]", result: object, problem: BaseException | None) -> None:
    if future.done():
        return
    if problem is None:
        future.set_result(result)
    elif isinstance(problem, VramlineError | OSError):
        future.set_exception(problem)
    else:
        future.set_exception(TransientError(f"{type(problem).__name__}: {problem}"))


def _look_at(future: "asyncio.Future[Any]") -> None:
    """A result that came too late is nobody's; that is no reason for a warning."""
    if not future.cancelled():
        future.exception()
