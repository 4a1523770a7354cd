"""A watch that another process reads says what it would say without."""

import asyncio
import random

import msgspec
import pytest

from kube.scripted import Visitor, serving
from vramline.bench.population import Population, PopulationShape
from vramline.bench.population_objects import pod_objects
from vramline.kube.client import KubeClient
from vramline.kube.mirror import Added, Change, Synced
from vramline.kube.objects import POD_SIGHTINGS
from vramline.kube.packed_pods import pack_pods, unpack_pods
from vramline.kube.reflector import Reflector
from vramline.kube.second_reader import SecondReader
from vramline.kube.target import Cluster, Target, User
from vramline.kube.watches import WatchReader
from vramline.wire.keys import INITIAL_EVENTS_END
from vramline.wire.pods import PodSighting

PODS = list(pod_objects(Population(PopulationShape(nodes=4, pods=60, waiting=10))))
LATER = 20


def line(document: object, what: str = "ADDED") -> bytes:
    return msgspec.json.encode({"type": what, "object": document}) + b"\n"


def stream() -> bytes:
    """Pods that were there, the end of them, and pods that come later, in one go."""
    lines = []
    for number, pod in enumerate(PODS, start=1):
        pod["metadata"]["resourceVersion"] = str(number)
        lines.append(line(pod))
    end = {"resourceVersion": str(len(PODS) - LATER), "annotations": {INITIAL_EVENTS_END: "true"}}
    lines.insert(len(PODS) - LATER, line({"metadata": end}, "BOOKMARK"))
    return b"".join(lines)


def changes(text: bytes, second: WatchReader[PodSighting] | None) -> list[Change[PodSighting]]:
    """Follow a watch that says this, in pieces that end anywhere, and return what came of it."""
    cuts = random.Random(5)
    wanted = len(PODS) + 1

    async def script(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        start = 0
        while start < len(text):
            piece = text[start : start + cuts.randrange(1, 30_000)]
            await visitor.say(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            start += len(piece)
        await visitor.say(b"0\r\n\r\n")

    async def follow() -> list[Change[PodSighting]]:
        found: list[Change[PodSighting]] = []
        done = asyncio.Event()

        def deliver(change: Change[PodSighting]) -> None:
            found.append(change)
            if len(found) >= wanted:
                done.set()

        async with serving(script) as server:
            target = Target(cluster=Cluster(server=f"http://127.0.0.1:{server.port}"), user=User())
            async with KubeClient(target, rng=random.Random(7)) as client:
                reflector = Reflector(client, POD_SIGHTINGS, rng=random.Random(7))
                reflector.second = second
                task = asyncio.create_task(reflector.run(deliver))
                async with asyncio.timeout(60):
                    await done.wait()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        return found

    return asyncio.run(follow())


def broken(_lines: bytes) -> bytes:
    raise OSError("no")


@pytest.mark.parametrize("work", [pack_pods, broken], ids=["works", "fails"])
def test_a_second_process_changes_nothing_of_what_is_told(work: object) -> None:
    reader = SecondReader(pack_pods if work is pack_pods else broken, unpack_pods)
    told = changes(stream(), reader)

    assert told == changes(stream(), None)
    assert not reader.is_open
    assert len([each for each in told if isinstance(each, Added)]) == len(PODS)
    assert isinstance(told[len(PODS) - LATER], Synced)
