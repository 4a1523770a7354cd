"""HTTP against a server that follows a script: what is known after each accident."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kube.scripted import Script, Server, Visitor, serving, until
from vramline.kube.http import Address, AnswerLostError, NotSentError, Pool, dial

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def pool_of(server: Server, clock: Callable[[], float] = lambda: 0.0) -> Pool:
    return Pool(lambda: dial(Address("127.0.0.1", server.port), None, timeout_s=30.0), clock=clock)


def run(script: Script, story: Callable[[Server, Pool], Awaitable[None]]) -> Server:
    async def tell() -> Server:
        async with serving(script) as server:
            pool = pool_of(server)
            await story(server, pool)
            pool.close()
            return server

    return asyncio.run(tell())


async def echo_for_ever(visitor: Visitor) -> None:
    while True:
        await visitor.answer(200, (await visitor.request()).split(b" ")[1])


async def ask(pool: Pool, path: str = "/", timeout_s: float = 2.0) -> bytes:
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    return (await pool.exchange(request, timeout_s=timeout_s)).body


# ── whole answers ────────────────────────────────────────────────────────────────────────────────────
def test_a_connection_is_used_again() -> None:
    async def story(_: Server, pool: Pool) -> None:
        assert [await ask(pool, f"/{number}") for number in range(3)] == [b"/0", b"/1", b"/2"]

    assert run(echo_for_ever, story).visits == 1


def test_calls_at_the_same_time_have_a_connection_each() -> None:
    async def story(_: Server, pool: Pool) -> None:
        answers = await asyncio.gather(*(ask(pool, f"/{number}") for number in range(5)))
        assert answers == [f"/{number}".encode() for number in range(5)]

    assert run(echo_for_ever, story).visits == 5


def test_connections_are_not_opened_without_end() -> None:
    async def story(server: Server, _: Pool) -> None:
        pool = Pool(lambda: dial(Address("127.0.0.1", server.port), None, timeout_s=30.0), limit=2)
        await asyncio.gather(*(ask(pool) for _ in range(10)))
        pool.close()

    assert run(echo_for_ever, story).visits == 2


def test_a_connection_that_was_idle_for_long_is_not_trusted() -> None:
    now = [0.0]

    async def story(server: Server, _: Pool) -> None:
        pool = pool_of(server, lambda: now[0])
        await ask(pool)
        now[0] = 44.0
        await ask(pool)
        assert server.visits == 1
        now[0] = 90.0
        await ask(pool)
        pool.close()

    assert run(echo_for_ever, story).visits == 2


def test_a_server_that_closes_after_its_answer_is_asked_anew() -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.answer(200, b"bye", "Connection: close")

    async def story(_: Server, pool: Pool) -> None:
        assert [await ask(pool), await ask(pool)] == [b"bye", b"bye"]

    assert run(script, story).visits == 2


def test_pieces_make_one_body() -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (b"3\r\nabc\r\n", b"2\r\nd", b"e\r\n", b"0\r\n\r\n"):
            await visitor.say(piece)
        await visitor.leave()

    async def story(_: Server, pool: Pool) -> None:
        answer = await pool.exchange(REQUEST, timeout_s=30.0)
        assert (answer.code, answer.body) == (200, b"abcde")
        assert answer.headers == {"transfer-encoding": "chunked"}

    run(script, story)


def test_an_interim_answer_is_not_the_answer() -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.say(b"HTTP/1.1 100 Continue\r\nX-Interim: 1\r\n\r\n")
        await visitor.answer(201, b"made", "X-Final: 1")
        await visitor.leave()

    async def story(_: Server, pool: Pool) -> None:
        answer = await pool.exchange(REQUEST, timeout_s=30.0)
        assert (answer.code, answer.body, "x-interim" in answer.headers) == (201, b"made", False)

    run(script, story)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Le", id="half a header"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", id="half a body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", id="no last piece"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n\r\n", id="another protocol"),
    ],
)
def test_an_answer_that_breaks_off_is_lost(said: bytes) -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.say(said)

    async def story(_: Server, pool: Pool) -> None:
        with pytest.raises(AnswerLostError):
            await ask(pool)

    run(script, story)


def test_a_late_answer_is_not_taken_for_that_of_the_next_call() -> None:
    async def script(visitor: Visitor) -> None:
        path = (await visitor.request()).split(b" ")[1]
        if path == b"/slow":
            await visitor.leave()
        await visitor.answer(200, path)
        await visitor.leave()

    async def story(_: Server, pool: Pool) -> None:
        with pytest.raises(AnswerLostError, match="no answer within"):
            await ask(pool, "/slow", timeout_s=0.05)
        assert await ask(pool, "/quick") == b"/quick"

    assert run(script, story).visits == 2


def test_a_call_that_is_given_up_takes_its_connection_with_it() -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.leave()

    async def story(server: Server, pool: Pool) -> None:
        call = asyncio.create_task(ask(pool, timeout_s=60.0))
        await until(lambda: server.visits == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert pool._idle == []

    run(script, story)


@pytest.mark.parametrize("at_once", [True, False], ids=["with the answer", "later"])
def test_bytes_that_nobody_asked_for_end_the_connection(at_once: bool) -> None:
    go_on = asyncio.Event()

    async def script(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.answer(200, b"first")
        if not at_once:
            await go_on.wait()
        await visitor.answer(200, b"uninvited")
        await visitor.leave()

    async def story(_: Server, pool: Pool) -> None:
        assert await ask(pool) == b"first"
        go_on.set()
        await until(lambda: not any(connection.is_open for connection in pool._idle))
        assert await ask(pool) == b"first"

    assert run(script, story).visits == 2


def test_where_nobody_listens_nothing_is_sent() -> None:
    async def story(server: Server, _: Pool) -> None:
        pool = Pool(lambda: dial(Address("127.0.0.1", 1), None, timeout_s=30.0))
        with pytest.raises(NotSentError, match=r"no connection to 127\.0\.0\.1:1"):
            await ask(pool)
        assert server.visits == 0

    run(echo_for_ever, story)


# ── streams ──────────────────────────────────────────────────────────────────────────────────────────
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_a_stream_is_read_while_it_arrives() -> None:
    go_on = asyncio.Event()

    async def script(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.say(CHUNKED + b"3\r\none\r\n")
        await go_on.wait()
        await visitor.say(b"3\r\ntwo\r\n0\r\n\r\n")
        await visitor.leave()

    async def story(_: Server, pool: Pool) -> None:
        async with pool.stream(REQUEST, timeout_s=30.0) as stream:
            first = await stream.read(2.0)
            go_on.set()
            assert (stream.code, first, await stream.read(2.0), await stream.read(2.0)) == (
                200,
                b"one",
                b"two",
                b"",
            )

    run(script, story)


@pytest.mark.parametrize(
    ("stays", "message"), [(True, "nothing arrived"), (False, "lost")], ids=["silence", "a cut"]
)
def test_a_broken_stream_is_told_after_what_has_arrived(stays: bool, message: str) -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.say(CHUNKED + b"3\r\none\r\n")
        if stays:
            await visitor.leave()

    async def story(_: Server, pool: Pool) -> None:
        async with pool.stream(REQUEST, timeout_s=30.0) as stream:
            assert await stream.read(2.0) == b"one"
            with pytest.raises(AnswerLostError, match=message):
                await stream.read(0.05)

    run(script, story)


def test_a_slow_reader_slows_the_server_down() -> None:
    piece = b"10000\r\n" + b"x" * 65_536 + b"\r\n"

    async def script(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.say(CHUNKED)
        for _ in range(256):
            await visitor.say(piece)
        await visitor.say(b"0\r\n\r\n")
        await visitor.leave()

    async def story(_: Server, pool: Pool) -> None:
        async with pool.stream(REQUEST, timeout_s=30.0) as stream:
            await until(lambda: stream._connection._paused)
            assert stream._reply.size < 4 << 20
            total = 0
            while taken := await stream.read(2.0):
                total += len(taken)
            assert total == 256 * 65_536

    run(script, story)
