"""The living cluster on the wall clock, and its HTTP, in one event loop until a signal ends it."""

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial

import uvicorn
import uvloop

from vramline.dashboard.routes import build_pages
from vramline.demo.life import Happening, LivingCluster
from vramline.scheduler.app import build_app
from vramline.scheduler.keeping import Keeper
from vramline.simulate.files import read_text

__all__ = ["DemoClock", "run_demo"]

_SHORTEST_TICK_S = 0.05


class DemoClock:
    """Wall-clock time that runs `speed` times as fast from the moment it is made."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._began_at = time.time()
        self._began = time.monotonic()

    def __call__(self) -> float:
        """Return seconds since the epoch."""
        return self._began_at + (time.monotonic() - self._began) * self._speed


class _Server(uvicorn.Server):
    """Leaves signals to its owner: a demo that is stopped by Ctrl-C has ended well."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run_demo(
    life: LivingCluster,
    listener: socket.socket,
    keeper: Keeper,
    *,
    speed: float,
    tell: Callable[[Happening], None],
) -> None:
    """Serve and live until SIGINT or SIGTERM; raise what broke if the cluster's own rules did."""
    uvloop.run(_serve(life, listener, keeper, tick_s=max(_SHORTEST_TICK_S, 1.0 / speed), tell=tell))


async def _serve(
    life: LivingCluster,
    listener: socket.socket,
    keeper: Keeper,
    *,
    tick_s: float,
    tell: Callable[[Happening], None],
) -> None:
    config = uvicorn.Config(
        build_app(
            life.cluster,
            life.history,
            chronicle=keeper.archive,
            more_figures=keeper.figures,
            pages=partial(build_pages, read_text=read_text),
        ),
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)

    def stop(*_: object) -> None:
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    living = asyncio.create_task(_live(life, tick_s, tell))
    living.add_done_callback(stop)
    keeping = asyncio.create_task(keeper.run())
    await server.serve(sockets=[listener])
    living.cancel()
    keeping.cancel()
    await keeper.close()
    with contextlib.suppress(asyncio.CancelledError):
        await living


async def _live(life: LivingCluster, tick_s: float, tell: Callable[[Happening], None]) -> None:
    """Tick until cancelled. What a tick raises ends the demo."""
    while True:
        for happening in life.tick():
            tell(happening)
        await asyncio.sleep(tick_s)
