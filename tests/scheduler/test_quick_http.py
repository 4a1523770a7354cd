"""The short way for what kube-scheduler asks about every pod, beside uvicorn's own."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from uvicorn.server import ServerState

from vramline.scheduler.quick_http import HotAnswer, QuickProtocol, quick_protocol

HEAD = b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\nContent-Type: application/json\r\n\r\n"
ANSWER = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 7\r\n\r\n"hello"'


class Wire(asyncio.Transport):
    """The other end of a connection: what was written, write by write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False
        self.over = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.closed = True
        self.over.set()

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def echo(body: bytes) -> tuple[int, bytes]:
    await asyncio.sleep(0)
    return (200, b'"%b"' % body) if body != b"wrong" else (400, b'{"error":"wrong"}')


async def by_uvicorn(request: Request) -> PlainTextResponse:
    return PlainTextResponse(b"uvicorn: " + await request.body())


def connect(answer: HotAnswer = echo) -> tuple[QuickProtocol, Wire, ServerState]:
    """Open a connection to a server on which /echo is hot."""
    app = Starlette(routes=[Route("/{path}", by_uvicorn, methods=["POST"])])
    made: Callable[..., Any] = quick_protocol({"/echo": answer}, longest=100)
    config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, timeout_keep_alive=1)
    config.load()
    state = ServerState()
    protocol: QuickProtocol = made(config=config, server_state=state, app_state={})
    wire = Wire()
    protocol.connection_made(wire)
    return protocol, wire, state


async def rest(turns: int = 20) -> None:
    """Let everything that can happen without the world happen."""
    for _ in range(turns):
        await asyncio.sleep(0)


def talk(*pieces: bytes) -> Wire:
    """Send these pieces, one after the other, and return what came back."""

    async def call() -> Wire:
        protocol, wire, _ = connect()
        for piece in pieces:
            protocol.data_received(piece)
        await rest()
        protocol.connection_lost(None)
        return wire

    return asyncio.run(call())


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param((HEAD + b"hello",), id="at once"),
        pytest.param((HEAD, b"hello"), id="head, then body"),
        pytest.param((HEAD + b"he", b"l", b"lo"), id="body in pieces"),
    ],
)
def test_an_answer_is_one_write(pieces: tuple[bytes, ...]) -> None:
    assert talk(*pieces).writes == [ANSWER]


def test_a_connection_is_used_again() -> None:
    async def call() -> Wire:
        protocol, wire, _ = connect()
        for _ in range(3):
            protocol.data_received(HEAD + b"hello")
            await rest()
        protocol.connection_lost(None)
        return wire

    assert asyncio.run(call()).writes == [ANSWER] * 3


@pytest.mark.parametrize("cut", [1, len(HEAD), len(HEAD) + 5, len(HEAD) + 6])
def test_requests_sent_before_the_answer_are_answered_in_order(cut: int) -> None:
    both = HEAD + b"hello" + HEAD + b"wrong"
    first = len(HEAD) + 5
    wire = talk(both[: first + cut], both[first + cut :])
    assert wire.writes[0] == ANSWER
    assert b"".join(wire.writes[1:]).startswith(b"HTTP/1.1 400 Bad Request\r\n")


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(HEAD.replace(b"echo", b"cold") + b"hello", id="another path"),
        pytest.param(
            HEAD.replace(b"Content-Length: 5", b"Transfer-Encoding: chunked") + b"5\r\nhello\r\n0\r\n\r\n",
            id="chunked",
        ),
        pytest.param(HEAD[:30] + b"|" + HEAD[30:] + b"hello", id="head in pieces"),
        pytest.param(HEAD.replace(b"HTTP/1.1", b"HTTP/1.0", 1) + b"hello", id="HTTP/1.0"),
    ],
)
def test_whatever_is_unusual_takes_the_way_of_uvicorn(request_: bytes) -> None:
    pieces = request_.split(b"|")
    assert b"".join(talk(*pieces).writes).endswith(b"uvicorn: hello")


@pytest.mark.parametrize("length", [b"5\r\nContent-Length: 6", b"five", b"-5", b"+5"])
def test_a_length_that_is_told_twice_or_is_no_number_is_refused(length: bytes) -> None:
    sent = b"".join(talk(HEAD.replace(b"5", length) + b"hello").writes)
    assert sent.startswith(b"HTTP/1.1 400")


def test_a_body_that_is_too_long_is_left_to_the_application() -> None:
    wire = talk(HEAD.replace(b"5", b"101") + b"x" * 101)
    assert b"".join(wire.writes).endswith(b"uvicorn: " + b"x" * 101)


def test_the_hot_way_opens_again_after_a_request_of_another_kind() -> None:
    async def call() -> Wire:
        protocol, wire, _ = connect()
        protocol.data_received(HEAD.replace(b"echo", b"cold") + b"hello")
        await rest()
        wire.writes.clear()
        protocol.data_received(HEAD + b"hello")
        await rest()
        protocol.connection_lost(None)
        return wire

    assert asyncio.run(call()).writes == [ANSWER]


def test_a_server_that_stops_answers_first_and_then_closes() -> None:
    async def call() -> Wire:
        protocol, wire, _ = connect()
        protocol.data_received(HEAD + b"hello")
        protocol.shutdown()
        assert not wire.closed
        await rest()
        return wire

    wire = asyncio.run(call())
    assert wire.writes == [ANSWER.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")]
    assert wire.closed


def test_an_answer_that_breaks_ends_the_connection() -> None:
    async def breaks(_body: bytes) -> tuple[int, bytes]:
        raise ZeroDivisionError

    async def call() -> Wire:
        protocol, wire, state = connect(breaks)
        protocol.data_received(HEAD + b"hello")
        (task,) = state.tasks
        with pytest.raises(ZeroDivisionError):
            await task
        return wire

    wire = asyncio.run(call())
    assert wire.closed
    assert not wire.writes


@pytest.mark.parametrize("path", [b"echo", b"cold"])
def test_a_connection_that_nobody_uses_is_closed(path: bytes) -> None:
    async def call() -> Wire:
        protocol, wire, state = connect()
        assert len(state.connections) == 1
        protocol.data_received(HEAD.replace(b"echo", path) + b"hello")
        await rest()
        await asyncio.wait_for(wire.over.wait(), 60)
        protocol.connection_lost(None)
        assert not state.connections
        return wire

    assert asyncio.run(call()).closed


@pytest.mark.parametrize("path", [b"echo", b"cold"])
def test_a_server_that_stops_closes_connections_that_wait(path: bytes) -> None:
    async def call() -> Wire:
        protocol, wire, _ = connect()
        protocol.data_received(HEAD.replace(b"echo", path) + b"hello")
        await rest()
        assert not wire.closed
        protocol.shutdown()
        return wire

    assert asyncio.run(call()).closed


def test_a_server_that_stops_lets_uvicorn_answer_what_it_has() -> None:
    async def call() -> Wire:
        protocol, wire, _ = connect()
        protocol.data_received(HEAD.replace(b"echo", b"cold"))
        protocol.shutdown()
        assert not wire.closed
        protocol.data_received(b"hello")
        await rest()
        return wire

    wire = asyncio.run(call())
    assert b"".join(wire.writes).endswith(b"uvicorn: hello")
    assert wire.closed
