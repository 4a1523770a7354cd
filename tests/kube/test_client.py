"""The client against a server that follows a script; tests/e2e has it against a real one."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kube.scripted import Script, Server, Visitor, serving
from vramline.errors import RequestError
from vramline.kube.client import KubeClient, Patch, Preconditions, Selection, Timing
from vramline.kube.failures import AmbiguousError, GoneError, NotFoundError, UnavailableError
from vramline.kube.objects import LEDGERS, NODES, PODS, ObjectKey
from vramline.kube.pace import Pace
from vramline.kube.target import Cluster, Target, User
from vramline.wire.ledger_v1alpha1 import GpuLedger

NODE = b'{"metadata":{"name":"n1","uid":"u1","resourceVersion":"5"}}'
QUICK = Timing(read_s=2.0, attempts=2, pace=Pace(0.001, 0.001))


def run(
    script: Script, story: Callable[[KubeClient], Awaitable[None]], user: User | None = None, prefix: str = ""
) -> Server:
    async def tell() -> Server:
        async with serving(script) as server:
            cluster = Cluster(server=f"http://127.0.0.1:{server.port}{prefix}")
            target = Target(cluster=cluster, user=user or User())
            async with KubeClient(target, rng=random.Random(1), timing=QUICK) as client:
                await story(client)
            return server

    return asyncio.run(tell())


class Listener:
    """Answers everything with the same body and keeps what it was asked."""

    def __init__(self, body: bytes = NODE, code: int = 200) -> None:
        self.asked: list[bytes] = []
        self._body, self._code = body, code

    async def __call__(self, visitor: Visitor) -> None:
        while True:
            self.asked.append(await visitor.request())
            await visitor.answer(self._code, self._body)

    def first_line(self) -> str:
        return self.asked[-1].split(b"\r\n")[0].decode()

    def body(self) -> bytes:
        return self.asked[-1].split(b"\r\n\r\n", 1)[1]


def test_every_verb_has_its_request() -> None:
    listener = Listener()
    lines = []

    async def story(client: KubeClient) -> None:
        key = ObjectKey("n1")
        await client.get(NODES, key)
        lines.append(listener.first_line())
        await client.create(NODES, {"metadata": {"name": "n1"}})
        lines.append(listener.first_line())
        await client.patch(NODES, key, Patch({}), subresource="status")
        lines.append(listener.first_line())
        assert b"Content-Type: application/merge-patch+json" in listener.asked[-1]
        await client.delete(NODES, key, preconditions=Preconditions(uid="u1"), grace_s=0)
        lines.append(listener.first_line())
        assert b'"preconditions":{"uid":"u1"},"gracePeriodSeconds":0' in listener.body()

    run(listener, story)

    assert lines == [
        "GET /api/v1/nodes/n1 HTTP/1.1",
        "POST /api/v1/nodes?timeout=10s HTTP/1.1",
        "PATCH /api/v1/nodes/n1/status?timeout=10s HTTP/1.1",
        "DELETE /api/v1/nodes/n1?timeout=10s HTTP/1.1",
    ]


def test_an_update_carries_the_version_it_was_planned_on() -> None:
    listener = Listener(
        b'{"apiVersion":"vramline.io/v1alpha1","kind":"GpuLedger",'
        b'"metadata":{"name":"n1","uid":"u1","resourceVersion":"6"},"spec":{"epoch":1}}'
    )

    async def story(client: KubeClient) -> None:
        stored = await client.update(LEDGERS, ObjectKey("n1"), GpuLedger(node="n1", epoch=1), version=5)
        assert (stored.version, stored.value.epoch) == (6, 1)

    run(listener, story)

    assert b'"metadata":{"name":"n1","resourceVersion":"5"}' in listener.body()


def test_a_server_may_live_below_a_path() -> None:
    listener = Listener()

    async def story(client: KubeClient) -> None:
        await client.get(NODES, ObjectKey("n1"))

    run(listener, story, prefix="/k8s/clusters/c-1/")

    assert listener.first_line() == "GET /k8s/clusters/c-1/api/v1/nodes/n1 HTTP/1.1"


def test_who_we_are_is_said_in_headers() -> None:
    listener = Listener()

    async def story(client: KubeClient) -> None:
        await client.get(NODES, ObjectKey("n1"))

    run(listener, story, User(token="t0k3n", headers=(("Impersonate-User", "them"),)))  # noqa: S106 — made up

    assert b"\r\nAuthorization: Bearer t0k3n\r\n" in listener.asked[0]
    assert b"\r\nImpersonate-User: them\r\n" in listener.asked[0]


def test_a_line_break_does_not_become_a_header() -> None:
    async def story(client: KubeClient) -> None:
        with pytest.raises(RequestError, match="line break"):
            await client.get(NODES, ObjectKey("n1"))

    run(Listener(), story, User(token="t\r\nX: y"))  # noqa: S106 — made up


def test_a_write_that_was_refused_for_an_old_token_is_sent_with_the_new_one(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    shown = []

    async def script(visitor: Visitor) -> None:
        while True:
            request = await visitor.request()
            shown.append(b"Bearer new" in request)
            token.write_text("new")
            await visitor.answer(200 if shown[-1] else 401, NODE)

    async def story(client: KubeClient) -> None:
        assert (await client.create(NODES, {})).version == 5

    run(script, story, User(token_file=token))

    assert shown == [False, True]


def test_a_write_whose_answer_makes_no_sense_is_ambiguous() -> None:
    async def story(client: KubeClient) -> None:
        with pytest.raises(AmbiguousError):
            await client.create(NODES, {})
        with pytest.raises(UnavailableError):
            await client.get(NODES, ObjectKey("n1"))

    run(Listener(b"<html>captive portal</html>"), story)


def test_content_that_is_wrong_is_said_for_a_single_object() -> None:
    body = b'{"metadata":{"name":"p","namespace":"d","uid":"u","resourceVersion":"1"},"spec":7}'

    async def story(client: KubeClient) -> None:
        with pytest.raises(RequestError, match="Pod d/p: spec = 7"):
            await client.get(PODS, ObjectKey("p", "d"))

    run(Listener(body), story)


def test_a_refused_watch_says_why() -> None:
    async def story(client: KubeClient) -> None:
        with pytest.raises(NotFoundError, match="404 page not found"):
            async with client.watch(NODES, Selection(), {}, idle_s=1.0):
                pass

    run(Listener(b"404 page not found", 404), story)


def test_lines_before_an_error_are_not_lost() -> None:
    lines = (
        b'{"type":"ADDED","object":{}}\n'
        b'{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"too old"}}\n'
    )

    async def story(client: KubeClient) -> None:
        async with client.watch(NODES, Selection(), {}, idle_s=1.0) as watch:
            assert [line.type for line in await watch.lines()] == ["ADDED"]
            with pytest.raises(GoneError, match="too old"):
                await watch.lines()

    run(Listener(lines), story)


def test_a_line_may_come_in_pieces() -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (b'{"type":"AD', b'DED","object"', b':{"a":1}}\n{"type":"DELETED","object":{}}\n'):
            await visitor.say(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        await visitor.say(b"0\r\n\r\n")
        await visitor.leave()

    async def story(client: KubeClient) -> None:
        async with client.watch(NODES, Selection(), {}, idle_s=1.0) as watch:
            types = []
            while lines := await watch.lines():
                types += [line.type for line in lines]
            assert types == ["ADDED", "DELETED"]

    run(script, story)
