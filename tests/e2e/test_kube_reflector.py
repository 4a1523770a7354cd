"""The reflector against a real API server: whatever happens on the way, it ends with what is there."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest

from controlplane.plane import ControlPlane
from e2e.kube_worlds import admin, kube_client, pod, until
from faultproxy.faults import Cut, Fault, Refuse, StaleAnswer, cut_after, drop, duplicate, end_with_gone
from faultproxy.proxy import FaultProxy, fault_proxy
from vramline.kube.client import KubeClient, Patch, Selection
from vramline.kube.mirror import Added, Change, Changed, Deleted, Synced
from vramline.kube.objects import PODS, ObjectKey, Unreadable
from vramline.kube.pace import Pace
from vramline.kube.reflector import Reflector, ReflectorTiming
from vramline.wire.kubernetes import PodObject

QUICK = ReflectorTiming(idle_s=60.0, pace=Pace(first_s=0.02, most_s=0.1))
STREAMS_LISTS = pytest.mark.since(34)
"""A watch that begins with what is there already."""
NO_STREAM = Refuse(422, reason="Invalid")
Known = dict[str, tuple[str, str]]
"""Pods by name: the UID, for a name may be given again, and the last step."""


@pytest.fixture(scope="module")
def shared_proxy(plane: ControlPlane) -> Iterator[FaultProxy]:
    with fault_proxy(plane) as running:
        yield running


@pytest.fixture
def proxy(shared_proxy: FaultProxy) -> Iterator[FaultProxy]:
    yield shared_proxy
    shared_proxy.clear()
    shared_proxy.asked.clear()


class Follower:
    """A consumer that keeps what it is told, and refuses to be told nonsense."""

    def __init__(self, client: KubeClient, labels: str, timing: ReflectorTiming) -> None:
        chosen = Selection(namespace="default", labels=labels)
        self.reflector = Reflector(client, PODS, rng=random.Random(3), selection=chosen, timing=timing)
        self.pods: Known = {}
        self.counted: Counter[str] = Counter()
        self.ended: list[str] = []

    def deliver(self, change: Change[PodObject]) -> None:
        """Count all but changes: a deletion by the API server is one as well, or not."""
        if not isinstance(change, Changed):
            self.counted[type(change).__name__] += 1
        match change:
            case Added(stored):
                assert stored.key.name not in self.pods
                self.pods[stored.key.name] = (stored.uid, step_of(stored.value))
            case Changed(stored):
                assert stored.key.name in self.pods
                self.pods[stored.key.name] = (stored.uid, step_of(stored.value))
            case Deleted(key, uid):
                del self.pods[key.name]
                self.ended.append(uid)
            case Unreadable() | Synced():
                pass


def step_of(value: PodObject) -> str:
    return (value.metadata.annotations or {}).get("step", "")


@contextlib.asynccontextmanager
async def following(
    client: KubeClient, labels: str, timing: ReflectorTiming = QUICK
) -> AsyncIterator[Follower]:
    follower = Follower(client, labels, timing)
    task = asyncio.create_task(follower.reflector.run(follower.deliver))
    try:
        yield follower
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class Author:
    """Writes pods of one set, past the proxy, and knows what must be seen in the end."""

    def __init__(self, client: KubeClient, label: str) -> None:
        self._client = client
        self._label = label
        self.pods: Known = {}

    async def create(self, *names: str) -> None:
        for name in names:
            body = pod(f"{self._label}-{name}", labels={"set": self._label}, annotations={"step": "0"})
            made = await self._client.create(PODS, body, namespace="default")
            self.pods[f"{self._label}-{name}"] = (made.uid, "0")

    async def change(self, name: str, step: int) -> None:
        full = f"{self._label}-{name}"
        patch = Patch({"metadata": {"annotations": {"step": str(step)}}})
        changed = await self._client.patch(PODS, ObjectKey(full, "default"), patch)
        self.pods[full] = (changed.uid, str(step))

    async def delete(self, name: str) -> None:
        full = f"{self._label}-{name}"
        await self._client.delete(PODS, ObjectKey(full, "default"), grace_s=0)
        del self.pods[full]


async def agree(follower: Follower, author: Author) -> None:
    await until(lambda: follower.reflector.synced and follower.pods == author.pods)


@pytest.mark.parametrize(
    "streamed", [pytest.param(True, marks=STREAMS_LISTS, id="by watch"), pytest.param(False, id="by list")]
)
def test_what_is_there_comes_first_and_then_what_changes(streamed: bool, proxy: FaultProxy) -> None:
    label = f"plain-{streamed}".lower()
    if not streamed:
        proxy.add(NO_STREAM, query="sendInitialEvents", times=99)

    async def follow() -> Counter[str]:
        async with kube_client(proxy.kubeconfig) as client:
            author = Author(client, label)
            await author.create("a", "b", "c")
            async with following(client, f"set={label}") as follower:
                await agree(follower, author)
                await author.create("d")
                await author.change("a", 1)
                await author.delete("b")
                await agree(follower, author)
                return follower.counted

    counted = asyncio.run(follow())

    assert counted == {"Added": 4, "Deleted": 1, "Synced": 1}
    lists = [asked for asked in proxy.asked if asked.method == "GET" and not asked.is_watch]
    assert bool(lists) is not streamed


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        pytest.param("dup", duplicate(), id="every line twice"),
        pytest.param("cutoff", cut_after(2), id="cut in the middle of a line"),
        pytest.param("gone", end_with_gone(b"MODIFIED"), id="410 in the middle"),
    ],
)
def test_faults_of_a_watch_change_nothing_in_the_end(
    name: str, fault: Fault, proxy: FaultProxy, plane: ControlPlane
) -> None:
    async def follow() -> Follower:
        async with admin(plane) as direct, kube_client(proxy.kubeconfig) as client:
            author = Author(direct, name)
            await author.create("a", "b")
            proxy.add(fault, query="watch=true", times=3)
            async with following(client, f"set={name}") as follower:
                await agree(follower, author)
                await author.create("c", "d")
                for step in range(1, 4):
                    await author.change("a", step)
                    await author.change("c", step)
                await author.delete("b")
                await author.delete("d")
                await author.create("b")
                await agree(follower, author)
                return follower

    follower = asyncio.run(follow())

    assert len(follower.ended) == len(set(follower.ended)) == 2


def test_what_ended_unseen_is_told_by_the_next_snapshot(proxy: FaultProxy, plane: ControlPlane) -> None:
    async def follow() -> list[str]:
        async with admin(plane) as direct, kube_client(proxy.kubeconfig) as client:
            author = Author(direct, "unseen")
            await author.create("a", "b", "c")
            async with following(client, "set=unseen") as follower:
                await agree(follower, author)
                proxy.add(Cut(), method="GET", times=9999)
                follower.reflector.resync()
                proxy.cut_all()
                await author.delete("a")
                await author.delete("b")
                await author.create("b")  # the same name, another pod
                proxy.clear()
                await agree(follower, author)
                return follower.ended

    assert len(asyncio.run(follow())) == 2


@STREAMS_LISTS
def test_lines_that_were_lost_are_found_by_a_resync(proxy: FaultProxy, plane: ControlPlane) -> None:
    async def follow() -> None:
        async with admin(plane) as direct, kube_client(proxy.kubeconfig) as client:
            author = Author(direct, "lost")
            await author.create("a")
            proxy.add(drop(b"lost-b|DELETED"), query="watch=true")
            async with following(client, "set=lost") as follower:
                await agree(follower, author)
                await author.create("b")
                await author.delete("a")
                await author.create("c")
                await until(lambda: "lost-c" in follower.pods)
                assert set(follower.pods) == {"lost-a", "lost-c"}
                follower.reflector.resync()
                proxy.cut_all()
                await agree(follower, author)

    asyncio.run(follow())


def test_a_list_older_than_what_was_seen_is_not_believed(proxy: FaultProxy, plane: ControlPlane) -> None:
    proxy.add(NO_STREAM, query="sendInitialEvents", times=99)

    async def follow() -> Counter[str]:
        async with admin(plane) as direct, kube_client(proxy.kubeconfig) as client:
            author = Author(direct, "stale")
            await author.create("a")
            async with following(client, "set=stale") as follower:
                await agree(follower, author)
                await author.create("b")
                await author.delete("a")
                await agree(follower, author)
                proxy.add(StaleAnswer(), path="/pods$", query="^(?!.*watch=true)", times=2)
                follower.reflector.resync()
                proxy.cut_all()
                await until(lambda: follower.counted["Synced"] == 2)
                await agree(follower, author)
                return follower.counted

    assert asyncio.run(follow()) == {"Added": 2, "Deleted": 1, "Synced": 2}


def test_a_refused_watch_is_tried_again(proxy: FaultProxy, plane: ControlPlane) -> None:
    for code in (429, 500, 503):
        proxy.add(Refuse(code, retry_after=0), query="watch=true")

    async def follow() -> None:
        async with admin(plane) as direct, kube_client(proxy.kubeconfig) as client:
            author = Author(direct, "refused")
            await author.create("a")
            async with following(client, "set=refused") as follower:
                await agree(follower, author)
                assert follower.reflector.problem == ""

    asyncio.run(follow())


@STREAMS_LISTS
def test_a_silent_connection_is_given_up(proxy: FaultProxy, plane: ControlPlane) -> None:
    proxy.add(drop(b"."), query="watch=true")  # connected, and not a word

    async def follow() -> None:
        async with admin(plane) as direct, kube_client(proxy.kubeconfig) as client:
            author = Author(direct, "silent")
            await author.create("a")
            timing = ReflectorTiming(idle_s=3.0, pace=QUICK.pace)  # time for the second to speak
            async with following(client, "set=silent", timing) as follower:
                await agree(follower, author)

    asyncio.run(follow())
    assert sum(asked.is_watch for asked in proxy.asked) == 2


def test_a_regular_end_resumes_where_it_ended(proxy: FaultProxy, plane: ControlPlane) -> None:
    async def follow() -> Counter[str]:
        async with admin(plane) as direct, kube_client(proxy.kubeconfig) as client:
            author = Author(direct, "brief")
            await author.create("a")
            timing = ReflectorTiming(watch_s=1.0, pace=QUICK.pace)
            async with following(client, "set=brief", timing) as follower:
                await agree(follower, author)
                await until(lambda: sum(asked.is_watch for asked in proxy.asked) >= 2)
                await author.change("a", 1)
                await agree(follower, author)
                return follower.counted

    assert asyncio.run(follow()) == {"Added": 1, "Synced": 1}
