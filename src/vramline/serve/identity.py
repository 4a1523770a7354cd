"""One identity for everything that is served over TLS: the webhook, and the listener of the nodes' agents."""

import asyncio
import contextlib
import datetime as dt
import ipaddress
import socket
from collections.abc import Iterable

from vramline.kube.client import KubeClient
from vramline.kube.objects import ObjectKey
from vramline.kube.webhook_store import WebhookStore
from vramline.scheduler.tls import CertificateKeeper, LiveTls

__all__ = [
    "AGENTS_BUNDLE",
    "AGENTS_SERVICE",
    "DASHBOARD_SERVICE",
    "WEBHOOK_CONFIGURATION",
    "WEBHOOK_SECRET",
    "WEBHOOK_SERVICE",
    "keep_identity",
]

WEBHOOK_SERVICE = "vramline-webhook"
WEBHOOK_SECRET = "vramline-webhook-tls"  # noqa: S105 — a name
WEBHOOK_CONFIGURATION = "vramline"
AGENTS_SERVICE = "vramline-agents"
DASHBOARD_SERVICE = "vramline-dashboard"
AGENTS_BUNDLE = ObjectKey("vramline-ca", "vramline-agent")
"""The ConfigMap beside the agents, which mount it."""


async def keep_identity(  # noqa: PLR0913 — one parameter for each who is served
    client: KubeClient,
    tls: LiveTls,
    *,
    namespace: str,
    webhook: socket.socket | None,
    agents: socket.socket | None,
    people: socket.socket | None = None,
    stop: asyncio.Event,
) -> None:
    """Keep `tls` served with a fresh certificate until `stop`. `namespace` holds Services and Secret."""
    store = WebhookStore(
        client,
        secret=ObjectKey(WEBHOOK_SECRET, namespace),
        configuration=None if webhook is None else ObjectKey(WEBHOOK_CONFIGURATION),
        bundle=None if agents is None else AGENTS_BUNDLE,
    )
    names: list[str] = []
    served = ((webhook, WEBHOOK_SERVICE), (agents, AGENTS_SERVICE), (people, DASHBOARD_SERVICE))
    for listener, service in served:
        if listener is not None:
            names += _names_of(service, listener, namespace)
    keeper = CertificateKeeper(
        store, tls, names=tuple(dict.fromkeys(names)), clock=lambda: dt.datetime.now(dt.UTC)
    )
    keeping = asyncio.create_task(keeper.run())
    try:
        await stop.wait()
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping


def _names_of(service: str, listener: socket.socket, namespace: str) -> Iterable[str]:
    """Return what a server may be called: by its Service, or by an address that is only ours."""
    named = f"{service}.{namespace}"
    host = str(listener.getsockname()[0])
    own = () if ipaddress.ip_address(host).is_unspecified else (host,)
    return (f"{named}.svc", named, f"{named}.svc.cluster.local", *own)
