"""Streams against a real WebSocket server with a real certificate."""

import asyncio
import contextlib
import datetime as dt
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from vramline.agent.addresses import Replicas, find_replicas
from vramline.agent.stream import Hooks, StreamRules, Streams, Taken
from vramline.kube.certificates import renew_identity
from vramline.kube.pace import Pace
from vramline.settings import Address
from vramline.wire.agent_stream_v1 import PATH
from vramline.wire.report_v1alpha1 import GpuReport, ReportedGpu, ReportedProcess


def sample(used: int, at: float = 0.0) -> Taken:
    return Taken(GpuReport(node="n1", gpus=(ReportedGpu(uuid="GPU-a", total_mib=9, used_mib=used),)), at)


class Scheduler:
    """A replica that writes down what it is sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.frames: list[dict[str, object]] = []
        self.headers: list[str] = []
        self.connection: ServerConnection | None = None
        self.refuses = False
        self.reads = asyncio.Event()
        self.reads.set()
        self.port = 0
        self.renew()

    def renew(self) -> None:
        """Get a new authority, and a certificate by it."""
        identity = renew_identity(None, names=("127.0.0.1",), now=dt.datetime.now(dt.UTC))
        (self.folder / "ca.crt").write_bytes(identity.trusted)
        (self.folder / "tls.pem").write_bytes(identity.certificate + identity.key)

    @contextlib.asynccontextmanager
    async def listen(self) -> AsyncIterator[None]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "tls.pem")
        async with serve(
            self._talk, "127.0.0.1", self.port, ssl=context, process_request=self._check, compression=None
        ) as server:
            self.port = next(iter(server.sockets)).getsockname()[1]
            yield

    def _check(self, connection: ServerConnection, request: Request) -> Response | None:
        self.headers.append(request.headers.get("Authorization", ""))
        if self.refuses or request.path != PATH:
            return connection.respond(403, "not the agent's service account\n")
        return None

    async def _talk(self, connection: ServerConnection) -> None:
        self.connection = connection
        async for message in connection:
            self.frames.append(msgspec.json.decode(message))
            await self.reads.wait()

    def uses(self) -> list[object]:
        """Memory in use in every frame."""
        return [each["status"]["gpus"][0]["usedMiB"] for each in self.frames]  # type: ignore[index]


class World:
    """An agent's streams, and one replica."""

    def __init__(self, folder: Path) -> None:
        (folder / "token").write_text("first\n")
        self.folder = folder
        self.now = 10.0
        self.scheduler = Scheduler(folder)
        self.look_ups = 0
        self.given: tuple[Address, ...] | None = None
        """Where to look for replicas, instead of at the scheduler's own address."""
        rules = StreamRules(
            token_file=folder / "token",
            ca_file=folder / "ca.crt",
            look_up_s=0.05,
            pace=Pace(first_s=0.01, most_s=0.05),
        )
        hooks = Hooks(find_replicas=self._find, look=self._look)
        self.streams = Streams(rules, hooks, lambda: self.now, random.Random(7))

    async def _find(self) -> Replicas:
        self.look_ups += 1
        own = (Address("127.0.0.1", self.scheduler.port),)
        return await find_replicas(own if self.given is None else self.given)

    async def _look(self, gpus: tuple[str, ...]) -> Taken:
        cards = tuple(ReportedGpu(uuid=uuid, total_mib=9, used_mib=5) for uuid in gpus)
        return Taken(GpuReport(node="n1", gpus=cards), self.now)

    async def say(self, text: str) -> None:
        assert self.scheduler.connection is not None
        await self.scheduler.connection.send(text)

    async def is_up(self) -> None:
        await until(lambda: self.streams.up == 1)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 — what it waits for knows nothing of events
            await asyncio.sleep(0.005)


def play(folder: Path, story: Callable[[World], Awaitable[None]], *, listens: bool = True) -> World:
    async def run() -> World:
        world = World(folder)
        async with contextlib.AsyncExitStack() as stack:
            if listens:
                await stack.enter_async_context(world.scheduler.listen())
            running = asyncio.create_task(world.streams.run())
            try:
                await story(world)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
        return world

    return asyncio.run(run())


def test_every_sample_arrives_with_its_age_and_the_token(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.is_up()
        await world.streams.offer(sample(1, at=9.9875))
        await until(lambda: len(world.scheduler.frames) == 1)
        await world.streams.offer(sample(2, at=10.0))
        await until(lambda: len(world.scheduler.frames) == 2)

    world = play(tmp_path, story)

    assert world.scheduler.uses() == [1, 2]
    assert [(each["kind"], each["ageMs"]) for each in world.scheduler.frames] == [
        ("sample", 13),
        ("sample", 0),
    ]
    assert world.scheduler.headers == ["Bearer first"]


def test_a_slow_reader_gets_the_newest_sample_only(tmp_path: Path) -> None:
    large = tuple(ReportedProcess(pid=pid, used_mib=1) for pid in range(1000))
    card = ReportedGpu(uuid="GPU-a", total_mib=9, processes=large)
    most = 600  # about 30 KB each: more than all buffers between hold

    async def story(world: World) -> None:
        await world.is_up()
        world.scheduler.reads.clear()
        for used in range(most):
            gpu = msgspec.structs.replace(card, used_mib=used)
            await world.streams.offer(Taken(GpuReport(node="n1", gpus=(gpu,)), 10.0))
            await asyncio.sleep(0)
        world.scheduler.reads.set()
        await until(lambda: bool(world.scheduler.frames) and world.scheduler.uses()[-1] == most - 1)

    assert len(play(tmp_path, story).scheduler.frames) < most / 2


def test_a_look_is_answered_with_just_those_cards(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.is_up()
        await world.say('{"kind":"look","id":7,"gpus":["GPU-b"]}')
        await until(lambda: bool(world.scheduler.frames))

    world = play(tmp_path, story)

    assert world.scheduler.frames == [
        {
            "kind": "look",
            "id": 7,
            "ageMs": 0,
            "status": {"gpus": [{"uuid": "GPU-b", "totalMiB": 9, "usedMiB": 5}]},
        }
    ]
    assert world.streams.looks == 1


def test_who_is_asked_to_rest_repeats_itself_less_often_and_tells_news_at_once(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.is_up()
        await world.streams.offer(sample(1))
        await until(lambda: len(world.scheduler.frames) == 1)
        await world.say('{"kind":"rest","ms":3000}')
        await world.say('{"kind":"look","id":7,"gpus":["GPU-a"]}')
        await until(lambda: len(world.scheduler.frames) == 2)
        world.now += 1.0
        await world.streams.offer(sample(1))
        world.now += 1.0
        await world.streams.offer(sample(2))
        await until(lambda: len(world.scheduler.frames) == 3)
        world.now += 3.0
        await world.streams.offer(sample(2))
        await until(lambda: len(world.scheduler.frames) == 4)

    look_answer = 5
    assert play(tmp_path, story).scheduler.uses() == [1, look_answer, 2, 2]


def test_a_frame_that_makes_no_sense_ends_the_stream_and_a_new_one_is_opened(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.is_up()
        await world.say('{"kind":"dance"}')
        await until(lambda: len(world.scheduler.headers) >= 2)
        await world.is_up()

    play(tmp_path, story)


def test_after_a_restart_of_the_scheduler_token_and_authority_are_read_again(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.scheduler.listen():
            await world.is_up()
        await until(lambda: world.streams.up == 0)
        world.scheduler.renew()
        (tmp_path / "token").write_text("second")
        async with world.scheduler.listen():
            await world.is_up()
            await world.streams.offer(sample(3))
            await until(lambda: bool(world.scheduler.frames))

    world = play(tmp_path, story, listens=False)

    assert world.scheduler.headers[0] == "Bearer first"
    assert world.scheduler.headers[-1] == "Bearer second"


@pytest.mark.parametrize("fault", ["refused", "wrong authority", "no token", "no authority"])
def test_nothing_is_streamed_to_whom_it_must_not(tmp_path: Path, fault: str) -> None:
    async def story(world: World) -> None:
        match fault:
            case "refused":
                world.scheduler.refuses = True
            case "wrong authority":
                (tmp_path / "other").mkdir()
                ca = Scheduler(tmp_path / "other").folder / "ca.crt"
                (tmp_path / "ca.crt").write_bytes(ca.read_bytes())
            case "no token":
                (tmp_path / "token").unlink()
            case "no authority":
                (tmp_path / "ca.crt").unlink()
        await world.streams.offer(sample(1))
        await until(lambda: world.streams.failures >= 3)

    world = play(tmp_path, story)

    assert (world.streams.up, world.scheduler.frames) == (0, [])


def test_a_name_that_cannot_be_looked_up_hides_no_other_and_ends_no_stream(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.is_up()
        world.given = (Address("no-such-host.invalid", 1),)
        looked_up = world.look_ups
        await until(lambda: world.look_ups > looked_up + 1)
        assert world.streams.up == 1

    play(tmp_path, story)

    found = asyncio.run(find_replicas((Address("no-such-host.invalid", 1), Address("127.0.0.1", 2))))
    assert ([str(each) for each in found.found], found.complete) == (["127.0.0.1:2"], False)


def test_a_replica_that_is_gone_is_let_go(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.is_up()
        world.given = ()
        await until(lambda: world.streams.up == 0)

    play(tmp_path, story)


def test_every_address_behind_every_name_is_a_replica() -> None:
    found = asyncio.run(find_replicas((Address("127.0.0.1", 1), Address("127.0.0.2", 2))))

    assert sorted(map(str, found.found)) == ["127.0.0.1:1", "127.0.0.2:2"]
    assert found.complete
