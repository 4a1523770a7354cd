"""The admission webhook beside the extender: its own socket, over TLS."""

import asyncio
import socket
from collections.abc import Callable

import structlog

from vramline.scheduler.tls import LiveTls, configure_server
from vramline.scheduler.webhook import build_webhook_app
from vramline.serve.server import QuietServer
from vramline.settings import Settings, admission_from

__all__ = ["run_webhook"]


async def run_webhook(
    listener: socket.socket,
    tls: LiveTls,
    settings: Settings,
    *,
    is_ready: Callable[[], bool],
    stop: asyncio.Event,
) -> None:
    """Serve reviews until `stop`; calls under way are answered."""
    options = admission_from(settings)
    server = QuietServer(configure_server(build_webhook_app(options, is_ready=is_ready), tls))
    structlog.get_logger().info("webhook.started", listen=listener.getsockname()[:2])
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await stop.wait()
    finally:
        server.should_exit = True
        await serving
