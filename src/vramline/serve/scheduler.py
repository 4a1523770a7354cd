"""`vramline scheduler`: reflectors, election, commit protocol and HTTP in one event loop."""

import asyncio
import gc
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import structlog
import uvicorn
from starlette.routing import BaseRoute

from vramline.explain.ghosts import find_ghosts
from vramline.kube.client import KubeClient
from vramline.kube.events import Recorder
from vramline.kube.lease import Callbacks, Elector, Terms
from vramline.kube.objects import ObjectKey
from vramline.kube.second_lister import SecondLister
from vramline.kube.target import Target
from vramline.scheduler.agent_streams import AgentStreams
from vramline.scheduler.app import MAX_BODY, SchedulerApp, build_app
from vramline.scheduler.bell import StorageBell
from vramline.scheduler.checks import Checks
from vramline.scheduler.clocks import SteadyClock
from vramline.scheduler.cluster import RealCluster
from vramline.scheduler.commit import Committer
from vramline.scheduler.conditions import PlacedConditions
from vramline.scheduler.eyes import Eyes
from vramline.scheduler.hami_lock import HamiLock
from vramline.scheduler.keeping import Keeper
from vramline.scheduler.kube_store import KubeStore
from vramline.scheduler.late_routes import LateRoutes
from vramline.scheduler.live import LiveState
from vramline.scheduler.nominator import HintRules, Nominator
from vramline.scheduler.preempter import Preempter
from vramline.scheduler.quick_http import quick_protocol
from vramline.scheduler.reservations import Reservations
from vramline.scheduler.telling import Telling
from vramline.scheduler.waking import Waker
from vramline.scheduler.window import SchedulerWindow
from vramline.serve.binding import Binding, open_binding
from vramline.serve.feeds import Feeds
from vramline.serve.figures import count_writes, show_figures
from vramline.serve.following import Follower
from vramline.serve.notices import TellingHistory, notice_of_ghost, notice_of_warning, open_recorder
from vramline.serve.server import QuietServer
from vramline.settings import (
    Adoption,
    HamiNodeLock,
    NominateAhead,
    Preemption,
    Settings,
    pool_from,
    read_feeds,
    rules_from,
)
from vramline.telemetry.tallies import Tallies

__all__ = ["ElectionRules", "SchedulerProcess"]

_REAP_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class ElectionRules:
    """How the replicas choose who binds."""

    lease: ObjectKey
    lease_s: int = 15
    """How long a leader that falls silent is waited for."""
    pod_name: str = ""
    beside: ObjectKey | None = None
    """Another Lease, in whose holder's pod the leader has to be."""

    def terms(self, identity: str) -> Terms:
        """Return the terms of one process: five renewals fit into the time in which one must succeed."""
        return Terms(
            identity=identity,
            place=f"{self.pod_name}_" if self.pod_name else "",
            lease_s=self.lease_s,
            renew_deadline_s=self.lease_s * 2 / 3,
            retry_s=self.lease_s * 2 / 15,
        )


@dataclass(slots=True)
class SchedulerProcess:
    """One replica of the scheduler."""

    settings: Settings
    target: Target
    listener: socket.socket
    election: ElectionRules
    webhook_listener: socket.socket | None = None
    """Where reviews are answered; None: nowhere. The webhook's Service and Secret are beside the Lease."""
    agent_listener: socket.socket | None = None
    """Where agents open their streams; None: nowhere."""
    metrics_listener: socket.socket | None = None
    """Where nothing but /metrics is served; None: nowhere."""
    dashboard_listener: socket.socket | None = None
    """Where people with a token see the dashboard; None: only on loopback."""

    async def run(self, second: SecondLister | None = None) -> None:
        """Serve until SIGINT or SIGTERM; hand the Lease back on the way out.

        `second` lists some of what is there at the start; None: this process does.
        """
        log = structlog.get_logger()
        rng = random.Random()  # noqa: S311 — jitter, not secrets
        async with KubeClient(self.target, rng=rng) as client:
            live = LiveState(
                rules_from(self.settings),
                clock=SteadyClock(),
                margin=self.settings.margin,
                release_grace_s=self.settings.release_grace_s,
                adopts_all=self.settings.adoption is Adoption.ALL,
                pool=pool_from(self.settings),
            )
            streams, binding = (
                AgentStreams(live.sightings, live.now),
                open_binding(client, live, self.settings),
            )
            feeds = Feeds(client, live, rng=rng, binding=binding, second=second)
            elector = self._elector(client, live, rng)
            recorder = open_recorder(client, self._place)
            checks = Checks(tell=lambda decision: recorder.record(notice_of_warning(decision)))
            waker = Waker(live, self._bell(client), checks.waiting, checks.tallies)
            eyes = Eyes(live, streams, checks, within_s=self.settings.look_within_s)
            committer = self._committer(client, live, elector, eyes, binding)
            preempter = Preempter(
                live, KubeStore(client), committer.leads, recorder.record, clock=time.monotonic
            )
            nominator = self._nominator(live, KubeStore(client), committer.leads, checks.tallies)
            cluster = RealCluster(live, committer, preempter if self._preempts else None, nominator)
            conditions = PlacedConditions(live, KubeStore(client), committer.leads, clock=time.monotonic)
            history = TellingHistory(recorder.record, hear=conditions.hear)
            keeper = Keeper(cluster, history, self.settings)
            desk = Reservations(live, committer, leader=lambda: elector.holder, tallies=checks.tallies)
            app = _application(cluster, history, feeds, checks, keeper, client)
            server, stop = _server(app, desk), _stop_on_signals()
            log.info(
                "scheduler.started",
                listen=self.listener.getsockname()[:2],
                server=self.target.cluster.server,
                nodes="all" if live.pool is None else f"{live.pool.key}={live.pool.value}",
            )
            async with asyncio.TaskGroup() as tasks:
                ahead = [] if nominator is None else [nominator.run()]
                keeping = [keeper.run(feeds.synced), *_keep(binding, committer, feeds, recorder)]
                telling = [recorder.run(), show_figures(self.metrics_listener, app.write_figures)]
                working = [_reap(committer, live, feeds, recorder), preempter.run(), conditions.run(), *ahead]
                background = [tasks.create_task(each) for each in (feeds.run(), *working, *telling, *keeping)]
                leading = tasks.create_task(self._lead(client, elector, feeds, stop))
                serving = tasks.create_task(server.serve(sockets=[self.listener]))
                asking = tasks.create_task(self._ask_others(live, stop))
                waking = tasks.create_task(waker.run(stop, committer.leads))
                facing = tasks.create_task(self._face_the_network(client, streams, live, feeds, app, stop))
                await stop.wait()
                server.should_exit = True
                await asyncio.gather(serving, leading, facing, waking, asking)
                for task in background:
                    task.cancel()
            await keeper.close()
            log.info("scheduler.stopped")

    async def _lead(self, client: KubeClient, elector: Elector, feeds: Feeds, stop: asyncio.Event) -> None:
        """Stand for election once the state is complete: a leader that knows half of it binds wrongly."""
        waits = [asyncio.create_task(feeds.synced.wait()), asyncio.create_task(stop.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if stop.is_set():
            return
        if self.election.beside is None:
            await elector.run(stop)
        else:
            await Follower(client, self.election.beside, self.election.pod_name).run(elector, stop)

    async def _face_the_network(
        self,
        client: KubeClient,
        streams: AgentStreams,
        live: LiveState,
        feeds: Feeds,
        app: SchedulerApp,
        stop: asyncio.Event,
    ) -> None:
        """Serve webhook, agents and dashboard, where that is wanted, with one identity."""
        webhook, agents, people = self.webhook_listener, self.agent_listener, self.dashboard_listener
        if webhook is None and agents is None and people is None:
            return
        from vramline.serve.facing import Facing  # noqa: PLC0415 — TLS takes a while to load

        facing = Facing(client, streams, live, feeds, app)
        facing.webhook, facing.agents, facing.people = webhook, agents, people
        await facing.run(self.settings, self.election.lease.namespace, stop)

    def _committer(
        self, client: KubeClient, live: LiveState, elector: Elector, eyes: Eyes, binding: Binding | None
    ) -> Committer:
        holder = None if binding is None else binding.holder
        made = Committer(live, KubeStore(client), lambda: elector.epoch or None, eyes=eyes, holder=holder)
        made.telling = Telling(device_names=self.settings.device_names)
        if self.settings.hami_node_lock is HamiNodeLock.ON:
            made.hami_lock = HamiLock(KubeStore(client), live.now)
        return made

    def _nominator(
        self, live: LiveState, store: KubeStore, leads: Callable[[], bool], tallies: Tallies
    ) -> Nominator | None:
        if self.settings.nominate_ahead is NominateAhead.OFF:
            return None
        rules = HintRules(scheduler_name=self.settings.scheduler_name)
        return Nominator(live, store, leads, rules, clock=time.monotonic, tallies=tallies)

    def _bell(self, client: KubeClient) -> StorageBell:
        return StorageBell(client, self.election.lease.namespace)

    @property
    def _preempts(self) -> bool:
        return self.settings.preemption is Preemption.ON

    async def _ask_others(self, live: LiveState, stop: asyncio.Event) -> None:
        feeds = read_feeds(self.settings.observations)
        if feeds:
            from vramline.scheduler.other_sources import OtherSources  # noqa: PLC0415 — few have any

            await OtherSources(live, feeds).run(stop)

    @property
    def _place(self) -> str:
        return self.election.pod_name or socket.gethostname()

    def _elector(self, client: KubeClient, live: LiveState, rng: random.Random) -> Elector:
        identity = f"{self._place}_{os.getpid()}_{rng.getrandbits(64):016x}"
        log = structlog.get_logger()
        callbacks = Callbacks(
            on_started=lambda epoch: log.info("scheduler.leads", epoch=epoch),
            on_stopped=lambda: log.info("scheduler.follows"),
            epoch_floor=live.newest_epoch,
        )
        return Elector(client, self.election.lease, self.election.terms(identity), callbacks, rng=rng)


def _application(
    cluster: RealCluster,
    history: TellingHistory,
    feeds: Feeds,
    checks: Checks,
    keeper: Keeper,
    client: KubeClient,
) -> SchedulerApp:
    return build_app(
        cluster,
        history,
        is_ready=feeds.synced.is_set,
        preempter=cluster.preempter,
        checks=checks,
        chronicle=keeper.archive,
        pages=lambda window: [LateRoutes(partial(_pages, window))],
        more_figures=lambda: chain(keeper.figures(), count_writes(client)),
    )


def _pages(window: SchedulerWindow) -> Iterable[BaseRoute]:
    from vramline.dashboard.routes import build_pages  # noqa: PLC0415 — nobody looks before it decides
    from vramline.simulate.files import read_text  # noqa: PLC0415

    return build_pages(window, read_text=read_text)


def _server(app: SchedulerApp, desk: Reservations) -> QuietServer:
    app.reservation_calls.desk = desk
    config = uvicorn.Config(
        app,
        http=quick_protocol(app.hot, longest=MAX_BODY),
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=5,
    )
    return QuietServer(config)


def _stop_on_signals() -> asyncio.Event:
    """Return what is set once somebody wants this process to end."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def _spare_the_collector() -> None:
    """Do not look for garbage in what was just listed, and less often in what comes: it slows every call."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _rest_the_collector() -> None:
    """Hardly look for garbage while everything is being listed: all of it stays."""
    gc.enable()
    gc.set_threshold(5_000_000, 50, 100)


def _keep(
    binding: Binding | None, committer: Committer, feeds: Feeds, recorder: Recorder
) -> list[Coroutine[Any, Any, None]]:
    """Look after reservation pods, where there are any."""
    return [] if binding is None else [binding.run(committer, feeds.synced, recorder.record)]


async def _reap(committer: Committer, live: LiveState, feeds: Feeds, recorder: Recorder) -> None:
    """Let go of what is over, once a second, as soon as everything is known; name what should be over."""
    _rest_the_collector()
    await feeds.synced.wait()
    _spare_the_collector()
    while True:
        await asyncio.sleep(_REAP_EVERY_S)
        await committer.reap()
        if committer.leads():
            grace_s, max_age_s = live.release_grace_s, live.rules.max_age_s
            for ghost in find_ghosts(live.fleet, now=live.now(), max_age_s=max_age_s, after_s=grace_s):
                recorder.record(notice_of_ghost(ghost))
