"""The admission webhook beside the extender: its own socket, TLS, and certificates that renew themselves."""

import asyncio
import contextlib
import datetime as dt
import ipaddress
import socket
from collections.abc import Callable

import structlog

from vramline.kube.client import KubeClient
from vramline.kube.objects import ObjectKey
from vramline.kube.webhook_store import WebhookStore
from vramline.scheduler.tls import CertificateKeeper, LiveTls, configure_server
from vramline.scheduler.webhook import build_webhook_app
from vramline.serve.server import QuietServer
from vramline.settings import Settings
from vramline.wire.admission import AdmissionOptions

__all__ = ["WEBHOOK_CONFIGURATION", "WEBHOOK_SECRET", "WEBHOOK_SERVICE", "run_webhook"]

WEBHOOK_SERVICE = "vramline-webhook"
WEBHOOK_SECRET = "vramline-webhook-tls"  # noqa: S105 — a name
WEBHOOK_CONFIGURATION = "vramline"


async def run_webhook(
    listener: socket.socket,
    client: KubeClient,
    settings: Settings,
    *,
    namespace: str,
    is_ready: Callable[[], bool],
    stop: asyncio.Event,
) -> None:
    """Serve reviews until `stop`; calls under way are answered. `namespace` holds Service and Secret."""
    tls = LiveTls()
    options = AdmissionOptions(
        scheduler_name=settings.scheduler_name, scheduler_name_policy=settings.scheduler_name_policy
    )
    server = QuietServer(configure_server(build_webhook_app(options, is_ready=is_ready), tls))
    store = WebhookStore(
        client,
        secret=ObjectKey(WEBHOOK_SECRET, namespace),
        configuration=ObjectKey(WEBHOOK_CONFIGURATION),
    )
    keeper = CertificateKeeper(
        store, tls, names=_names(listener, namespace), clock=lambda: dt.datetime.now(dt.UTC)
    )
    structlog.get_logger().info("webhook.started", listen=listener.getsockname()[:2])
    keeping = asyncio.create_task(keeper.run())
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await stop.wait()
    finally:
        keeping.cancel()
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
        await serving


def _names(listener: socket.socket, namespace: str) -> tuple[str, ...]:
    """Return what the API server may call us: by the Service, or by an address that is only ours."""
    service = f"{WEBHOOK_SERVICE}.{namespace}"
    host = str(listener.getsockname()[0])
    own = () if ipaddress.ip_address(host).is_unspecified else (host,)
    return (f"{service}.svc", service, f"{service}.svc.cluster.local", *own)
