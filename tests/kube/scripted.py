"""A server on loopback that says exactly what a test tells it to."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

_TURNS_TO_ACCEPT = 5
Script = Callable[["Visitor"], Awaitable[None]]


class Visitor:
    """One connection, as the server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def request(self) -> bytes:
        """Return the next request, whole."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return head + await self._reader.readexactly(length)

    async def say(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self, code: int, body: bytes = b"", *headers: str) -> None:
        """Send an answer."""
        lines = [f"HTTP/1.1 {code} X", f"Content-Length: {len(body)}", *headers, "", ""]
        await self.say("\r\n".join(lines).encode() + body)

    async def leave(self) -> None:
        """Wait until the client closes the connection."""
        await self._reader.read()


class Server:
    """A running server; `visits` counts its connections."""

    def __init__(self, script: Script) -> None:
        self.visits = 0
        self.port = 0
        self._script = script
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Play the script for one connection."""
        self.visits += 1
        self._writers.append(writer)
        task = asyncio.create_task(self._play(reader, writer))
        self._tasks.add(task)

    async def _play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._script(Visitor(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    async def stop(self) -> None:
        """Drop all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:  # a task that is cancelled before its first step has not done it
            writer.transport.abort()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def serving(script: Script) -> AsyncIterator[Server]:
    """Run a server that plays the script for every connection."""
    server = Server(script)
    listener = await asyncio.start_server(server.accept, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        for _ in range(_TURNS_TO_ACCEPT):  # asyncio drops, unclosed, whom it accepted just before
            await asyncio.sleep(0)
        listener.close()
        await server.stop()


async def until(is_so: Callable[[], bool]) -> None:
    """Let the other side go on until something holds."""
    async with asyncio.timeout(60.0):
        while not is_so():  # noqa: ASYNC110 — what it waits for knows nothing of events
            await asyncio.sleep(0)
