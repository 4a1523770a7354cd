"""TLS of the webhook: certificates kept in one place by all replicas, and exchanged under a running server.

No replica leads here. Each reads what is stored, writes what is due under the condition that nobody else did,
publishes whom to trust, and serves what is stored. A server certificate is exchanged in the live context:
calls under way keep the old one, new connections get the new one.
"""

import asyncio
import contextlib
import datetime as dt
import os
import ssl
from collections.abc import Callable, Iterator
from typing import Protocol

import structlog
import uvicorn
from starlette.types import ASGIApp

from vramline.errors import TransientError
from vramline.kube.certificates import (
    Lifetimes,
    TlsIdentity,
    read_identity,
    renew_identity,
    write_identity,
)

__all__ = ["CertificateKeeper", "IdentityStore", "LiveTls", "configure_server"]


class IdentityStore(Protocol):
    """Where the identity is kept, and who is told whom to trust. Any call may raise `TransientError`."""

    async def read(self) -> tuple[dict[str, bytes], str]:
        """Return the data of the Secret and its version."""
        ...

    async def write(self, data: dict[str, bytes], version: str) -> bool:
        """Replace the data if it is still at this version; False: it is not."""
        ...

    async def publish(self, trusted: bytes) -> None:
        """Make API servers trust exactly this bundle; nothing happens where they do already."""
        ...


class LiveTls:
    """The TLS context of a running server, whose certificate may be exchanged at any time."""

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._served = b""

    @property
    def is_ready(self) -> bool:
        """Whether there is a certificate to serve."""
        return bool(self._served)

    def serve(self, identity: TlsIdentity) -> bool:
        """Present this certificate from the next connection on; whether it is another one than before."""
        if identity.certificate == self._served:
            return False
        with _in_memory(identity.certificate + identity.key) as path:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)  # or the live one would be spoilt
            self.context.load_cert_chain(path)
        self._served = identity.certificate
        return True


def configure_server(app: ASGIApp, tls: LiveTls) -> uvicorn.Config:
    """Return how to serve an application with this TLS; its owner has the socket, signals and logs."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    config.load()
    config.ssl = tls.context
    return config


class CertificateKeeper:
    """Keeps one replica's certificate fresh."""

    def __init__(
        self,
        store: IdentityStore,
        tls: LiveTls,
        *,
        names: tuple[str, ...],
        clock: Callable[[], dt.datetime],
        lifetimes: Lifetimes | None = None,
    ) -> None:
        self._store = store
        self._tls = tls
        self._names = names
        self._clock = clock
        self._lifetimes = lifetimes
        self._log = structlog.get_logger()

    async def check(self) -> None:
        """Renew what is due, publish and serve what is stored; raises `TransientError`."""
        data, version = await self._store.read()
        given = read_identity(data)
        wanted = renew_identity(given, names=self._names, now=self._clock(), lifetimes=self._lifetimes)
        if wanted != given:
            if not await self._store.write(write_identity(wanted), version):
                raise TransientError("another replica renewed the webhook's certificate at the same time")
            self._log.info("certificate.renewed", whole=given is None)
        await self._store.publish(wanted.trusted)
        if self._tls.serve(wanted):
            self._log.info("certificate.served")

    async def run(self, *, every_s: float = 60.0, retry_s: float = 5.0) -> None:
        """Check until cancelled. What is served goes on being served while the store cannot be reached."""
        while True:
            try:
                await self.check()
            except TransientError as error:
                self._log.warning("certificate.delayed", problem=str(error))
                await asyncio.sleep(retry_s)
            else:
                await asyncio.sleep(every_s)


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Give content a path, as `ssl` wants it, without writing a private key to any disk."""
    number = os.memfd_create("vramline-tls", os.MFD_CLOEXEC)
    try:
        os.write(number, content)
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)
