"""`/metrics` and `/healthz`, in as little as two pages need."""

import asyncio
import contextlib
import socket
from collections.abc import Callable

import msgspec

__all__ = ["Page", "serve_pages"]

_REQUEST_S = 5.0
_LONGEST_REQUEST = 8192


class Page(msgspec.Struct, frozen=True):
    """One answer."""

    body: bytes
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
                writer.write(_write(_choose(head, pages)))
                await writer.drain()
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


def _write(page: Page) -> bytes:
    head = (
        f"HTTP/1.1 {page.status}\r\nContent-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + page.body
