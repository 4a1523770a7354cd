"""Two pages over plain HTTP."""

import asyncio
import contextlib
import socket

import httpx
import pytest

from open_sockets import sockets_at
from vramline.agent.listen import open_metrics_socket
from vramline.agent.web import Page, serve_pages
from vramline.errors import RequestError, TransientError
from vramline.settings import Address

PAGES = {
    "/healthz": lambda: Page(b"ok\n"),
    "/metrics": lambda: Page(b"figures", "503 Service Unavailable"),
    "/long": lambda: Page(b"piece " for _ in range(10_000)),
}


def ask(method: str, path: str) -> httpx.Response:
    async def run() -> httpx.Response:
        listener = open_metrics_socket(Address("127.0.0.1", 0))
        async with await serve_pages(listener, PAGES), httpx.AsyncClient() as client:
            return await client.request(method, f"http://127.0.0.1:{listener.getsockname()[1]}{path}")

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("method", "path", "code", "body"),
    [
        ("GET", "/healthz", 200, "ok\n"),
        ("GET", "/healthz?verbose", 200, "ok\n"),
        ("GET", "/metrics", 503, "figures"),
        ("GET", "/long", 200, "piece " * 10_000),
        ("GET", "/", 404, "there are /metrics and /healthz\n"),
        ("POST", "/healthz", 405, "only GET is answered\n"),
    ],
)
def test_pages(method: str, path: str, code: int, body: str) -> None:
    answer = ask(method, path)

    assert (answer.status_code, answer.text) == (code, body)


def test_a_caller_that_speaks_no_http_is_cut_off() -> None:
    async def run() -> bytes:
        listener = open_metrics_socket(Address("127.0.0.1", 0))
        async with await serve_pages(listener, PAGES):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"x" * 100_000)
            with contextlib.closing(writer), contextlib.suppress(ConnectionError):
                return await reader.read()
            return b""

    assert asyncio.run(run()) == b""


def test_a_caller_that_says_nothing_is_let_go_at_the_end() -> None:
    async def run() -> tuple[int, socket.socket]:
        listener = open_metrics_socket(Address("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        async with await serve_pages(listener, PAGES):
            caller = socket.create_connection(("127.0.0.1", port))
            while sockets_at(port) < 2:  # noqa: ASYNC110 — the listener, and the connection
                await asyncio.sleep(0)
            for _ in range(5):  # until its request is waited for
                await asyncio.sleep(0)
        return port, caller

    port, caller = asyncio.run(run())

    with caller:
        assert sockets_at(port) == 0


def test_a_port_in_use_and_a_strange_address_are_told_apart() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(TransientError, match="--metrics-listen"),
    ):
        open_metrics_socket(Address("127.0.0.1", taken.getsockname()[1]))
    with pytest.raises(RequestError, match="is not an address of a network interface"):
        open_metrics_socket(Address("example", 1))
