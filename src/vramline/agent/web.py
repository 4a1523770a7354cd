"""`/metrics` and `/healthz`, in as little as two pages need."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

import msgspec

__all__ = ["Page", "serve_pages"]

_REQUEST_S = 5.0
_LONGEST_REQUEST = 8192


class Page(msgspec.Struct, frozen=True):
    """One answer."""

    body: bytes | Iterator[bytes]
    """Whole, or in pieces that are made while it is sent, so that a long one holds nobody up."""
    status: str = "200 OK"
    content_type: str = "text/plain; charset=utf-8"


_NOT_FOUND = Page(b"there are /metrics and /healthz\n", "404 Not Found")
_NOT_ALLOWED = Page(b"only GET is answered\n", "405 Method Not Allowed")


async def serve_pages(listener: socket.socket, pages: dict[str, Callable[[], Page]]) -> asyncio.Server:
    """Answer GET for each path, one request a connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
            for piece in _write(_choose(head, pages)):
                writer.write(piece)
                async with asyncio.timeout(_REQUEST_S):
                    await writer.drain()
                await asyncio.sleep(0)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # late, gone, or no HTTP
        finally:
            writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    return await asyncio.start_server(answer, sock=listener, limit=_LONGEST_REQUEST)


def _choose(head: bytes, pages: dict[str, Callable[[], Page]]) -> Page:
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    if path not in pages:
        return _NOT_FOUND
    return pages[path]() if method == "GET" else _NOT_ALLOWED


def _write(page: Page) -> Iterator[bytes]:
    """Yield head and body; the end of the connection ends a body whose length nobody knows yet."""
    length = f"Content-Length: {len(page.body)}\r\n" if isinstance(page.body, bytes) else ""
    head = f"HTTP/1.1 {page.status}\r\nContent-Type: {page.content_type}\r\n{length}Connection: close\r\n\r\n"
    yield head.encode("latin-1")
    if isinstance(page.body, bytes):
        yield page.body
    else:
        yield from page.body
