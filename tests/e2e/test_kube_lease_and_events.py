"""Election and events at a real API server."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from controlplane.plane import ControlPlane
from e2e.kube_worlds import admin, kube_client, until
from faultproxy.faults import Cut, Refuse, SwallowAnswer
from faultproxy.proxy import FaultProxy, fault_proxy
from vramline.kube.client import KubeClient
from vramline.kube.events import Journal, Notice, Recorder, Regarding, Reporter, Severity
from vramline.kube.lease import Callbacks, Elector, Terms
from vramline.kube.objects import LEASES, ObjectKey

LONG_S, SHORT_S = 120, 5
"""A lease that does not run out, however busy the machine is; and one that is to run out."""
ABOUT = Regarding(kind="Pod", name="llm-0", namespace="default", uid="b7a1c3de-0000-4000-8000-000000000000")


@pytest.fixture(scope="module")
def shared_proxy(plane: ControlPlane) -> Iterator[FaultProxy]:
    with fault_proxy(plane) as running:
        yield running


@pytest.fixture
def proxy(shared_proxy: FaultProxy) -> Iterator[FaultProxy]:
    yield shared_proxy
    shared_proxy.clear()
    shared_proxy.asked.clear()


class Replica:
    """One candidate, and the terms it had."""

    def __init__(
        self, client: KubeClient, lease: str, identity: str, *, lease_s: int = LONG_S, floor: int = 0
    ) -> None:
        self.terms: list[int] = []
        self.ended = 0
        callbacks = Callbacks(
            on_started=self.terms.append, on_stopped=self.count_end, epoch_floor=lambda: floor
        )
        terms = Terms(identity=identity, lease_s=lease_s, renew_deadline_s=0.6 * lease_s, retry_s=0.1)
        key = ObjectKey(lease, "default")
        self.elector = Elector(client, key, terms, callbacks, rng=random.Random(1))
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(self.elector.run(self.stop))

    def count_end(self) -> None:
        self.ended += 1

    async def resign(self) -> None:
        self.stop.set()
        await self.task


def test_one_leads_and_the_next_follows_at_once_when_it_resigns(plane: ControlPlane) -> None:
    async def elect() -> tuple[list[int], list[int], int]:
        async with admin(plane) as client:
            one = Replica(client, "resign", "one")
            await until(lambda: bool(one.elector.epoch))
            two = Replica(client, "resign", "two")
            await until(lambda: two.elector.holder == "one")
            await one.resign()
            await until(lambda: bool(two.elector.epoch), seconds=LONG_S / 2)
            await two.resign()
            holder = (await client.get(LEASES, ObjectKey("resign", "default"))).value.spec.holder_identity
            assert not holder
            return one.terms, two.terms, one.ended

    assert asyncio.run(elect()) == ([1], [2], 1)


def test_a_leader_that_is_cut_off_stops_before_the_next_one_starts(
    plane: ControlPlane, proxy: FaultProxy
) -> None:
    async def elect() -> tuple[list[int], list[int]]:
        async with admin(plane) as direct, kube_client(proxy.kubeconfig) as through:
            one = Replica(through, "cutoff", "one", lease_s=SHORT_S)
            await until(lambda: bool(one.elector.epoch))
            two = Replica(direct, "cutoff", "two", lease_s=SHORT_S)
            await until(lambda: two.elector.holder == "one")
            proxy.add(Cut(), times=9999)
            proxy.cut_all()
            await until(lambda: bool(two.elector.epoch))
            assert (one.elector.epoch, one.ended) == (0, 1)
            await asyncio.gather(one.resign(), two.resign())
            return one.terms, two.terms

    assert asyncio.run(elect()) == ([1], [2])


def test_a_renewal_whose_answer_is_lost_keeps_the_term(proxy: FaultProxy) -> None:
    async def elect() -> tuple[list[int], int]:
        async with kube_client(proxy.kubeconfig) as client:
            one = Replica(client, "lossy", "one")
            await until(lambda: bool(one.elector.epoch))
            proxy.add(SwallowAnswer(), method="PUT", times=3)
            proxy.add(Refuse(503), method="PUT", times=2)
            proxy.add(Refuse(409), method="PUT")
            before = proxy.count("PUT")
            await until(lambda: proxy.count("PUT") >= before + 8)
            ended = one.ended
            await one.resign()
            return one.terms, ended

    assert asyncio.run(elect()) == ([1], 0)


def test_after_a_deleted_lease_epochs_go_on_above_those_in_use(plane: ControlPlane) -> None:
    async def elect() -> tuple[list[int], list[int]]:
        async with admin(plane) as client:
            one = Replica(client, "deleted", "one")
            await until(lambda: bool(one.elector.epoch))
            await one.resign()
            await client.delete(LEASES, ObjectKey("deleted", "default"))
            two = Replica(client, "deleted", "two", floor=41)
            await until(lambda: bool(two.elector.epoch))
            await two.resign()
            return one.terms, two.terms

    assert asyncio.run(elect()) == ([1], [42])


def test_the_same_news_becomes_one_event_with_a_count(plane: ControlPlane) -> None:
    async def tell() -> Recorder:
        async with admin(plane) as client:
            reporter = Reporter("vramline.io/scheduler", "replica-1")
            recorder = Recorder(client, reporter, journal=Journal(repeat_s=0.0))
            task = asyncio.create_task(recorder.run())
            notice = Notice(
                regarding=ABOUT,
                reason="InsufficientVram",
                action="Scheduling",
                note="7,500 MiB short on every card. " + "…" * 1000,
                severity=Severity.WARNING,
            )
            for _ in range(5):
                recorder.record(notice)
            await recorder.drain()
            task.cancel()
            return recorder

    recorder = asyncio.run(tell())
    with plane.client() as http:
        listed = http.get("/apis/events.k8s.io/v1/namespaces/default/events").json()["items"]
    events = [each for each in listed if each["regarding"].get("uid") == ABOUT.uid]

    assert (recorder.written, recorder.dropped, recorder.failed) == (5, 0, 0)
    assert [(event["reason"], event["series"]["count"], event["type"]) for event in events] == [
        ("InsufficientVram", 5, "Warning")
    ]
    assert events[0]["regarding"]["uid"] == ABOUT.uid


def test_an_event_about_a_node_is_accepted(plane: ControlPlane) -> None:
    async def tell() -> Recorder:
        async with admin(plane) as client:
            recorder = Recorder(client, Reporter("vramline.io/scheduler", "replica-1"))
            task = asyncio.create_task(recorder.run())
            about = Regarding(kind="Node", name="n1", uid="n1")
            recorder.record(Notice(regarding=about, reason="NodeFrozen", action="Checking", note="…"))
            await recorder.drain()
            task.cancel()
            return recorder

    recorder = asyncio.run(tell())

    assert (recorder.written, recorder.failed) == (1, 0)


def test_an_event_that_is_not_taken_is_counted_and_told_again(proxy: FaultProxy) -> None:
    proxy.add(Refuse(503), method="POST", path="/events$")

    async def tell() -> Recorder:
        async with kube_client(proxy.kubeconfig) as client:
            recorder = Recorder(client, Reporter("vramline.io/scheduler", "replica-1"))
            task = asyncio.create_task(recorder.run())
            for _ in range(2):
                notice = Notice(regarding=ABOUT, reason="Retold", action="Testing", note="…")
                recorder.record(notice)
                await recorder.drain()
            task.cancel()
            return recorder

    recorder = asyncio.run(tell())

    assert (recorder.written, recorder.failed) == (1, 1)
