"""What another process lists is what would be listed here, and where it fails, it is listed here."""

import asyncio
import os
import random
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from kube.scripted import Visitor
from vramline.bench.population import Population, PopulationShape
from vramline.bench.population_objects import node_objects, pod_objects
from vramline.kube.client import KubeClient
from vramline.kube.mirror import Added, Change, Deleted, Synced
from vramline.kube.objects import LEDGERS, NODES, POD_SIGHTINGS, Stored, Unreadable
from vramline.kube.packed_objects import PACKED_NODES, PACKED_PODS
from vramline.kube.reflector import Reflector
from vramline.kube.second_lister import SecondLister
from vramline.kube.target import Cluster, Target, User
from vramline.wire.keys import INITIAL_EVENTS_END

POPULATION = Population(PopulationShape(nodes=40, pods=600, waiting=10))
UNREADABLE = {
    "apiVersion": "v1",
    "metadata": {"name": "odd", "namespace": "team-0", "uid": "u-odd"},
    "spec": 7,
}
THERE: dict[str, list[dict[str, Any]]] = {
    "nodes": list(node_objects(POPULATION)),
    "pods": [*pod_objects(POPULATION), UNREADABLE],
}
for number, document in enumerate([each for kind in THERE.values() for each in kind], start=1):
    document["metadata"]["resourceVersion"] = str(number)
VERSION = sum(map(len, THERE.values()))
LAST = {
    "metadata": {"name": "gone", "namespace": "team-0", "uid": "u-odd", "resourceVersion": str(VERSION + 1)}
}
Script = Callable[[Visitor, str, str], Awaitable[None]]


def line(document: object, what: str = "ADDED") -> bytes:
    return msgspec.json.encode({"type": what, "object": document}) + b"\n"


async def say(visitor: Visitor, text: bytes) -> None:
    for start in range(0, len(text), 50_000):  # pieces end anywhere
        piece = text[start : start + 50_000]
        await visitor.say(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")


def end_of_list() -> bytes:
    meta = {"resourceVersion": str(VERSION), "annotations": {INITIAL_EVENTS_END: "true"}}
    return line({"metadata": meta}, "BOOKMARK")


async def stream_all(visitor: Visitor, plural: str, query: str) -> None:
    """Stream what there is where that is wanted, and one more object in any case."""
    await visitor.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    if "sendInitialEvents" in query:
        await say(visitor, b"".join(map(line, THERE[plural])) + end_of_list())
    elif f"resourceVersion={VERSION}" not in query:
        return
    await say(visitor, line(LAST))
    await visitor.leave()


async def list_in_pages(visitor: Visitor, plural: str, query: str) -> None:
    """Know no watch that starts with everything."""
    if "sendInitialEvents" in query:
        await visitor.answer(400, b"{}", "Connection: close")
    elif "watch=true" in query:
        await stream_all(visitor, plural, query)
    else:
        page = {"metadata": {"resourceVersion": str(VERSION)}, "items": THERE[plural]}
        await visitor.answer(200, msgspec.json.encode(page), "Connection: close")


class Server:
    """Plays a script on a port that is known before there is a loop; counts who asked for everything."""

    def __init__(self, script: Script) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.target = Target(
            cluster=Cluster(server=f"http://127.0.0.1:{self.listener.getsockname()[1]}"), user=User()
        )
        self.asked = 0
        self._script = script

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visitor = Visitor(reader, writer)
        path, _, query = (await visitor.request()).split(b" ")[1].decode().partition("?")
        self.asked += "sendInitialEvents" in query
        try:
            await self._script(visitor, path.rpartition("/")[2], query)
        except OSError:
            pass  # who asked is gone
        finally:
            writer.close()


def told(
    script: Script, *, second: bool, before: Callable[[], None] = lambda: None, at_once: bool = False
) -> tuple[list[Any], int]:
    """Follow nodes and pods until one came after all were there; return what was told, and who asked."""
    server = Server(script)
    lister = SecondLister(server.target, (PACKED_NODES, PACKED_PODS)) if second else None
    found: dict[str, list[Change[Any]]] = {"nodes": [], "pods": []}

    async def follow() -> None:
        before()
        done = asyncio.Event()

        def deliver(plural: str, change: Change[Any]) -> None:
            found[plural].append(change)
            if all(len(each) > len(THERE[kind]) + 1 for kind, each in found.items()):
                done.set()

        def deliver_all(plural: str, new: list[Stored[Any]]) -> None:
            for each in new:
                deliver(plural, Added(each))

        async with (
            await asyncio.start_server(server.accept, sock=server.listener),
            KubeClient(server.target, rng=random.Random(7)) as client,
            asyncio.timeout(60),
        ):
            tasks = []
            for resource in (NODES, POD_SIGHTINGS):
                reflector: Reflector[Any] = Reflector(client, resource, rng=random.Random(7))
                reflector.second = None if lister is None else lister.lister(resource)
                reflector.take_new = partial(deliver_all, resource.plural) if at_once else None
                tasks.append(asyncio.create_task(reflector.run(partial(deliver, resource.plural))))
            await done.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(follow())
    return [found["nodes"], _in_order(found["pods"])], server.asked


def _in_order(changes: list[Change[Any]]) -> list[Change[Any]]:
    """Return changes with those before the end of the list by name: what comes in a list has no order."""
    end = next(place for place, each in enumerate(changes) if isinstance(each, Synced))
    return [*sorted(changes[:end], key=repr), *changes[end:]]


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    before = children()
    yield
    assert children() == before


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split())


@pytest.mark.parametrize("script", [stream_all, list_in_pages], ids=["streamed", "in-pages"])
@pytest.mark.parametrize("at_once", [False, True], ids=["one-by-one", "at-once"])
def test_another_process_changes_nothing_of_what_is_told(script: Script, at_once: bool) -> None:
    alone, asked_alone = told(script, second=False)
    together, asked = told(script, second=True, at_once=at_once)

    assert together == alone
    assert told(script, second=False, at_once=at_once) == (alone, asked_alone)
    assert any(isinstance(each, Unreadable) for each in alone[1])
    assert not any(isinstance(each, Deleted) for each in alone[1])
    assert asked == asked_alone == 2


def fails_at_first(then: Script) -> Script:
    """Break the connection of whoever asks first, in the middle of what there is."""
    visits = []

    async def script(visitor: Visitor, plural: str, query: str) -> None:
        visits.append(plural)
        if len(visits) == 1:
            await visitor.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            await say(visitor, b"".join(map(line, THERE[plural][:30])))
            return
        await then(visitor, plural, query)

    return script


def breaks_among_pods(then: Script) -> Script:
    """Break the connection of whoever asks for pods first, when many were told already."""
    visits = []

    async def script(visitor: Visitor, plural: str, query: str) -> None:
        visits.append(plural)
        if plural == "pods" and visits.count("pods") == 1:
            await visitor.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            await say(visitor, b"".join(map(line, THERE[plural][:550])))
            return
        await then(visitor, plural, query)

    return script


def refuses_at_first(then: Script) -> Script:
    """Tell whoever asks first that it may not."""
    visits = []

    async def script(visitor: Visitor, plural: str, query: str) -> None:
        visits.append(plural)
        if len(visits) == 1:
            await visitor.answer(403, b"{}", "Connection: close")
            return
        await then(visitor, plural, query)

    return script


@pytest.mark.parametrize(
    "script",
    [fails_at_first(stream_all), breaks_among_pods(stream_all), refuses_at_first(stream_all)],
    ids=["broken", "broken-late", "refused"],
)
def test_what_another_process_could_not_list_is_listed_here(script: Script) -> None:
    uvloop.run(asyncio.sleep(0))  # a loop that ran before leaves files behind, which the other process closes
    alone, _ = told(stream_all, second=False)
    together, asked = told(script, second=True, at_once=True)

    assert together == alone
    assert asked == 3


def test_where_the_other_process_is_killed_all_is_listed_here() -> None:
    known = children()

    def kill() -> None:
        (pid,) = children() - known
        os.kill(int(pid), signal.SIGKILL)

    alone, _ = told(stream_all, second=False)
    together, _ = told(stream_all, second=True, before=kill)

    assert together == alone


def test_it_ends_when_it_is_closed_and_nothing_of_it_is_left() -> None:
    known, server = children(), Server(stream_all)
    with server.listener:
        lister = SecondLister(server.target, (PACKED_NODES,))
        assert len(children() - known) == 1

        async def close() -> None:
            await lister.close()
            await lister.close()

        asyncio.run(close())


def test_a_kind_that_it_does_not_list_is_none_of_its_business() -> None:
    server = Server(stream_all)
    with server.listener:
        lister = SecondLister(server.target, (PACKED_NODES,))
        assert lister.lister(LEDGERS) is None
        assert lister.lister(NODES) is not None
        asyncio.run(lister.close())
