"""The dashboard for people outside the machine: its own socket, over TLS, for who shows a token."""

import asyncio
import socket
import time
from collections.abc import Iterator

import structlog
from starlette.applications import Starlette

from vramline.dashboard.routes import build_pages
from vramline.dashboard.token_gate import TokenGate
from vramline.kube.access_reviews import AccessReviewer
from vramline.kube.client import KubeClient
from vramline.scheduler.app import SchedulerApp
from vramline.scheduler.reservation_calls import ReservationCalls
from vramline.scheduler.reservation_gate import ReservationGate
from vramline.scheduler.tls import LiveTls, configure_server
from vramline.scheduler.window import SchedulerWindow
from vramline.serve.server import QuietServer
from vramline.simulate.files import read_text

__all__ = ["run_dashboard"]


async def run_dashboard(
    listener: socket.socket, tls: LiveTls, client: KubeClient, scheduler: SchedulerApp, stop: asyncio.Event
) -> None:
    """Serve the pages, and reservations to who may have pods, until `stop`; open pages are cut off."""
    window, reviewer = scheduler.window, AccessReviewer(client)
    calls = ReservationCalls(window.cluster, ReservationGate(reviewer))
    calls.desk = scheduler.reservation_calls.desk
    gate = TokenGate(reviewer, lambda: _namespaces(window), time.monotonic)
    app = Starlette(routes=[*calls.routes(), *build_pages(window, read_text=read_text, gate=gate)])
    server = QuietServer(configure_server(app, tls))
    structlog.get_logger().info("dashboard.started", listen=listener.getsockname()[:2])
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await stop.wait()
    finally:
        server.should_exit = True
        await serving


def _namespaces(window: SchedulerWindow) -> Iterator[str]:
    """Yield the namespaces of pods that want a GPU, or hold memory on one."""
    for pod in window.cluster.pods.values():
        if pod.ask is not None:
            yield pod.namespace
    for claim in window.cluster.fleet.ledger:
        yield claim.pod.partition("/")[0]
