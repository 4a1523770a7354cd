"""The real server on a free port, in a thread of its own, over a cluster that a test may change."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import uvicorn

from last_turns import leave_nothing_open
from vramline.scheduler.app import SchedulerApp

__all__ = ["Served", "serve"]

T = TypeVar("T")


class Served:
    """An application that is being served."""

    def __init__(self, app: SchedulerApp) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.base = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def do(self, change: Callable[[], T]) -> T:
        """Change the cluster in the thread that owns it."""

        async def call() -> T:
            return change()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(timeout=60)

    def stop(self) -> None:
        """Stop serving, whoever listens."""
        self._server.should_exit = True
        self._thread.join(timeout=60)
        self._socket.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        await self._server.serve(sockets=[self._socket])
        await leave_nothing_open()  # uvicorn cancels streams that go on, and does not wait for their end


@contextmanager
def serve(app: SchedulerApp) -> Iterator[Served]:
    """Serve an application."""
    served = Served(app)
    try:
        yield served
    finally:
        served.stop()
