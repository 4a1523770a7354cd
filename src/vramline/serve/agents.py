"""Where the nodes' agents connect: a socket of its own, TLS, and nobody comes in without a token."""

import asyncio
import http
import logging
import socket
from collections.abc import Callable
from weakref import WeakKeyDictionary

import structlog
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from vramline.errors import TransientError
from vramline.kube.client import KubeClient
from vramline.kube.failures import ApiError
from vramline.kube.token_reviews import TokenReviewer
from vramline.scheduler.agent_streams import AgentStreams
from vramline.scheduler.doorkeeper import Admitted, Doorkeeper
from vramline.scheduler.tls import LiveTls
from vramline.wire.agent_stream_v1 import AUDIENCE, MAX_FRAME_BYTES, PATH
from vramline.wire.token_review_v1 import TokenHolder

__all__ = ["run_agent_listener"]

_MOST_HANDSHAKES = 512
"""Connections that have not shown a token yet; more are cut off."""


class _Reviews:
    """Satisfies `doorkeeper.Reviewer`."""

    def __init__(self, reviewer: TokenReviewer) -> None:
        self._reviewer = reviewer

    async def review(self, token: str) -> TokenHolder | None:
        """Ask the API server; any failure of it is a reason to try again later."""
        try:
            return await self._reviewer.review(token)
        except ApiError as error:
            raise TransientError(str(error)) from error


class _Entrance:
    """Lets agents in, and hands their streams over."""

    def __init__(self, doorkeeper: Doorkeeper, streams: AgentStreams) -> None:
        self._doorkeeper = doorkeeper
        self._streams = streams
        # A handshake may still fail after we have agreed; whatever it leaves behind goes with its connection.
        self._admitted: WeakKeyDictionary[ServerConnection, Admitted] = WeakKeyDictionary()
        self._waiting = 0

    async def check(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer a handshake; None: come in."""
        if request.path != PATH:
            return connection.respond(http.HTTPStatus.NOT_FOUND, f"agents stream to {PATH}\n")
        if self._waiting >= _MOST_HANDSHAKES:
            return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "too many at once; try again\n")
        self._waiting += 1
        try:
            verdict = await self._doorkeeper.admit(request.headers.get("Authorization", ""))
        finally:
            self._waiting -= 1
        if isinstance(verdict, Admitted):
            self._admitted[connection] = verdict
            return None
        structlog.get_logger().warning("agent.refused", peer=connection.remote_address, why=verdict.why)
        return connection.respond(http.HTTPStatus(verdict.status), verdict.why + "\n")

    async def talk(self, connection: ServerConnection) -> None:
        """Serve a stream that was let in."""
        await self._streams.serve(connection, self._admitted.pop(connection))


async def run_agent_listener(
    listener: socket.socket,
    tls: LiveTls,
    client: KubeClient,
    streams: AgentStreams,
    *,
    clock: Callable[[], float],
    stop: asyncio.Event,
) -> None:
    """Serve the agents' streams until `stop`."""
    entrance = _Entrance(Doorkeeper(_Reviews(TokenReviewer(client, AUDIENCE)), clock), streams)
    quiet = logging.getLogger("vramline.websockets")
    quiet.setLevel(logging.CRITICAL)  # a port scan is no news
    async with serve(
        entrance.talk,
        sock=listener,
        ssl=tls.context,
        process_request=entrance.check,
        max_size=MAX_FRAME_BYTES,
        max_queue=4,
        compression=None,
        server_header=None,
        close_timeout=2.0,
        logger=quiet,
    ):
        structlog.get_logger().info("agents.started", listen=listener.getsockname()[:2])
        await stop.wait()
