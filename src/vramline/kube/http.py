"""HTTP/1.1 to one server: keep-alive connections, whole answers, and streams with back-pressure.

Small because it does only what an API server needs, and exact about the one thing that matters for writes:
`NotSentError` means that no byte of the request left, `AnswerLostError` that it did and what came of it is
unknown. Nothing is ever sent twice here. docs/decisions has the figures that led to it.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import httptools
import msgspec

__all__ = ["Address", "Answer", "AnswerLostError", "Connection", "NotSentError", "Pool", "Stream", "dial"]

_IDLE_S = 45.0
"""A connection unused for longer is not used again: the API server closes it after 90 s, and a request that
crosses the closing would be ambiguous."""
_CONNECTIONS = 32
_BUFFER_BYTES = 1 << 20
"""What a stream may hold for a slow reader before the socket is left unread."""


class NotSentError(Exception):
    """No connection could be had; nothing was sent."""


class AnswerLostError(Exception):
    """The request was sent, and no whole answer came back."""


class Address(msgspec.Struct, frozen=True):
    """Where to connect, and under which name the server proves itself."""

    host: str
    port: int
    server_name: str = ""


class Answer(msgspec.Struct, frozen=True):
    """A whole answer. Header names are lower case."""

    code: int
    headers: dict[str, str]
    body: bytes


class _Reply:
    """What has arrived of one answer; the parser calls its `on_…` methods."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.code = 0
        self.headers: dict[str, str] = {}
        self.chunks: list[bytes] = []
        self.size = 0
        self.whole = False
        self.keeps_open = False
        """Whether the connection may be used for another request."""
        self.lost = ""
        """Why no more of it will come."""
        self.headed: asyncio.Future[None] = loop.create_future()
        self.finished: asyncio.Future[None] = loop.create_future()
        self.arrived = asyncio.Event()
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Take in bytes; raises httptools' errors."""
        if self._parser is not None:
            self._parser.feed_data(data)

    def end(self, lost: str = "") -> None:
        """Wake everyone who waits; `lost` says why no more will come."""
        self.lost, self.whole = lost, not lost
        self._parser = None  # the parser holds us: let go of each other
        for future in (self.headed, self.finished):
            if not future.done():
                future.set_result(None)
        self.arrived.set()

    def take(self) -> bytes:
        """Return what has arrived since the last call."""
        taken = b"".join(self.chunks)
        self.chunks.clear()
        self.size = 0
        return taken

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        if not self.whole:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The status is known; an interim answer (1xx) is not the answer."""
        if self._parser is None:
            return
        code = self._parser.get_status_code()
        if code < 200:
            self.headers.clear()
            return
        self.code = code
        if not self.headed.done():
            self.headed.set_result(None)

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        if not self.whole:
            self.chunks.append(body)
            self.size += len(body)
            self.arrived.set()

    def on_message_begin(self) -> None:
        """A second answer to one request: nothing on this connection can be trusted any more."""
        if self.whole:
            self.keeps_open = False

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self.code and self._parser is not None:
            self.keeps_open = self._parser.should_keep_alive()
            self.end()


class Connection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._reply: _Reply | None = None
        self._paused = False
        self.is_streaming = False
        """Whether somebody takes the body while it arrives, so that a full buffer empties again."""
        self.idle_since = 0.0

    @property
    def is_open(self) -> bool:
        """Whether a request may be sent."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_reusable(self) -> bool:
        """Whether the last answer came whole and the server keeps the connection."""
        return self.is_open and self._reply is not None and self._reply.whole and self._reply.keeps_open

    def send(self, request: bytes) -> _Reply:
        """Send a request and return the answer to be."""
        if self._transport is None or self._transport.is_closing():
            raise NotSentError("the connection was closed")
        self._reply = _Reply(self._loop)
        self._transport.write(request)
        return self._reply

    def close(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def resume(self) -> None:
        """Read on after the buffer was emptied."""
        if self._paused and self._transport is not None and self.is_open:
            self._paused = False
            self._transport.resume_reading()

    # ── asyncio.Protocol ─────────────────────────────────────────────────────────────────────────────
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take in bytes; those that nobody asked for end the connection."""
        reply = self._reply
        if reply is None or reply.whole or self._transport is None:
            self.close()
            return
        try:
            reply.feed(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            reply.end(f"not HTTP as expected: {error}")
            self.close()
        if self.is_streaming and reply.size > _BUFFER_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits."""
        if self._reply is not None and not self._reply.whole and not self._reply.lost:
            self._reply.end(f"the connection was lost ({exc or 'closed by the server'})")


class Stream:
    """An answer that is read while it arrives."""

    def __init__(self, connection: Connection, reply: _Reply) -> None:
        self._connection = connection
        self._reply = reply
        self.code = reply.code
        self.headers = reply.headers

    async def read(self, timeout_s: float) -> bytes:
        """Return what has arrived, at least one byte; empty: the answer is complete.

        Raises `AnswerLostError` when the connection breaks or nothing arrives for `timeout_s`.
        """
        reply = self._reply
        while not reply.chunks:
            if reply.whole:
                return b""
            if reply.lost:
                raise AnswerLostError(reply.lost)
            reply.arrived.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await reply.arrived.wait()
            except TimeoutError:
                raise AnswerLostError(f"nothing arrived for {timeout_s:g} s") from None
        taken = reply.take()
        self._connection.resume()
        return taken


async def dial(address: Address, context: ssl.SSLContext | None, *, timeout_s: float) -> Connection:
    """Connect; raises `NotSentError`."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _connect(address, context)
    except TimeoutError:
        raise NotSentError(f"no connection to {address.host}:{address.port} within {timeout_s:g} s") from None
    except OSError as error:  # ssl.SSLError and failed name look-ups are OSErrors too
        raise NotSentError(f"no connection to {address.host}:{address.port}: {error}") from error


async def _connect(address: Address, context: ssl.SSLContext | None) -> Connection:
    """Connect, then secure: in one step, asyncio loses the socket if that step is cancelled at its start."""
    loop = asyncio.get_running_loop()
    plain, connection = await loop.create_connection(lambda: Connection(loop), address.host, address.port)
    if context is None:
        return connection
    secured = None
    try:
        name = address.server_name or address.host
        secured = await loop.start_tls(plain, connection, context, server_hostname=name)
    finally:
        if secured is None:
            plain.abort()
    if secured is None:
        raise ConnectionAbortedError("closed by the server")
    connection.connection_made(secured)
    return connection


class Pool:
    """Connections to one server, used again while they are fresh."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        *,
        limit: int = _CONNECTIONS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._slots = asyncio.Semaphore(limit)
        self._idle: list[Connection] = []

    async def exchange(self, request: bytes, *, timeout_s: float) -> Answer:
        """Send a request and return the whole answer; `timeout_s` counts from the sending."""
        async with self._slots:
            connection = await self._take()
            reply = connection.send(request)
            try:
                async with asyncio.timeout(timeout_s):
                    await reply.finished
            except TimeoutError:
                raise AnswerLostError(f"no answer within {timeout_s:g} s") from None
            finally:
                self._give_back(connection)
            if reply.lost:
                raise AnswerLostError(reply.lost)
            return Answer(reply.code, reply.headers, reply.take())

    @contextlib.asynccontextmanager
    async def stream(self, request: bytes, *, timeout_s: float) -> AsyncIterator[Stream]:
        """Send a request on a connection of its own; the body is read by the caller."""
        connection = await self._connect()
        connection.is_streaming = True
        try:
            reply = connection.send(request)
            try:
                async with asyncio.timeout(timeout_s):
                    await reply.headed
            except TimeoutError:
                raise AnswerLostError(f"no answer within {timeout_s:g} s") from None
            if not reply.code:
                raise AnswerLostError(reply.lost)
            yield Stream(connection, reply)
        finally:
            connection.close()

    def close(self) -> None:
        """Close what is idle; calls under way end by themselves."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and self._clock() - connection.idle_since < _IDLE_S:
                return connection
            connection.close()
        return await self._connect()

    def _give_back(self, connection: Connection) -> None:
        """Keep a connection whose answer came whole; a late answer must not be taken for the next one's."""
        if connection.is_reusable:
            connection.idle_since = self._clock()
            self._idle.append(connection)
        else:
            connection.close()
