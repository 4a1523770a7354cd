"""What only a scheduler process can count, and an address that shows figures and nothing else."""

import asyncio
import socket
from collections.abc import Callable, Iterator

import structlog

from vramline.agent.web import Page, serve_pages
from vramline.kube.client import KubeClient
from vramline.telemetry.metrics import CONTENT_TYPE, Gauge, Sample

__all__ = ["count_writes", "show_figures"]


def count_writes(client: KubeClient) -> Iterator[Sample]:
    """Yield how this process's writes to the API server ended."""
    for labels, count in sorted(client.writes.items()):
        yield Sample(Gauge.API_WRITES, count, labels)


async def show_figures(listener: socket.socket | None, write: Callable[[], Iterator[bytes]]) -> None:
    """Serve /metrics until cancelled; None: nowhere."""
    if listener is None:
        return
    server = await serve_pages(listener, {"/metrics": lambda: Page(write(), content_type=CONTENT_TYPE)})
    structlog.get_logger().info("metrics.started", listen=listener.getsockname()[:2])
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        server.close()
