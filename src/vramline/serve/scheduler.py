"""`vramline scheduler`: reflectors, election, commit protocol and HTTP in one event loop."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import structlog
import uvicorn

from vramline.explain.history import History
from vramline.kube.client import KubeClient
from vramline.kube.lease import Callbacks, Elector, Terms
from vramline.kube.objects import ObjectKey
from vramline.kube.target import Target
from vramline.scheduler.app import build_app
from vramline.scheduler.cluster import RealCluster
from vramline.scheduler.commit import Committer
from vramline.scheduler.kube_store import KubeStore
from vramline.scheduler.live import LiveState
from vramline.serve.feeds import Feeds
from vramline.settings import Settings, rules_from

__all__ = ["SchedulerProcess"]

_REAP_EVERY_S = 1.0


class _Server(uvicorn.Server):
    """Leaves signals to its owner."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(slots=True)
class SchedulerProcess:
    """One replica of the scheduler."""

    settings: Settings
    target: Target
    listener: socket.socket
    lease: ObjectKey
    history: History = field(default_factory=History)

    async def run(self) -> None:
        """Serve until SIGINT or SIGTERM; hand the Lease back on the way out."""
        log = structlog.get_logger()
        rng = random.Random()  # noqa: S311 — jitter, not secrets
        async with KubeClient(self.target, rng=rng) as client:
            live = LiveState(
                rules_from(self.settings),
                clock=time.time,
                margin=self.settings.margin,
                release_grace_s=self.settings.release_grace_s,
            )
            feeds = Feeds(client, live, rng=rng)
            elector = self._elector(client, live, rng)
            committer = Committer(live, KubeStore(client), lambda: elector.epoch or None)
            server = self._server(RealCluster(live, committer), feeds)
            stop = asyncio.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
            log.info(
                "scheduler.started", listen=self.listener.getsockname()[:2], server=self.target.cluster.server
            )
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(feeds.run())
                reaping = tasks.create_task(_reap(committer, feeds))
                leading = tasks.create_task(self._lead(elector, feeds, stop))
                serving = tasks.create_task(server.serve(sockets=[self.listener]))
                await stop.wait()
                server.should_exit = True
                await asyncio.gather(serving, leading)
                following.cancel()
                reaping.cancel()
            log.info("scheduler.stopped")

    async def _lead(self, elector: Elector, feeds: Feeds, stop: asyncio.Event) -> None:
        """Stand for election once the state is complete: a leader that knows half of it binds wrongly."""
        waits = [asyncio.create_task(feeds.synced.wait()), asyncio.create_task(stop.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if not stop.is_set():
            await elector.run(stop)

    def _elector(self, client: KubeClient, live: LiveState, rng: random.Random) -> Elector:
        identity = (
            f"{os.environ.get('POD_NAME') or socket.gethostname()}_{os.getpid()}_{rng.getrandbits(64):016x}"
        )
        log = structlog.get_logger()
        callbacks = Callbacks(
            on_started=lambda epoch: log.info("scheduler.leads", epoch=epoch),
            on_stopped=lambda: log.info("scheduler.follows"),
            epoch_floor=live.newest_epoch,
        )
        return Elector(client, self.lease, Terms(identity=identity), callbacks, rng=rng)

    def _server(self, cluster: RealCluster, feeds: Feeds) -> _Server:
        app = build_app(cluster, self.history, is_ready=feeds.synced.is_set)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=5,
        )
        return _Server(config)


async def _reap(committer: Committer, feeds: Feeds) -> None:
    """Let go of what is over, once a second, as soon as everything is known."""
    await feeds.synced.wait()
    while True:
        await committer.reap()
        await asyncio.sleep(_REAP_EVERY_S)
