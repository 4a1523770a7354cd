"""Streams of agents over real WebSockets: samples in, looks out, and what a bad one may do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from kubernetes_builders import node_object, report
from scheduler.agent_clients import StandInAgent, agent_at, card
from vramline.model.rules import Rules
from vramline.scheduler.agent_streams import AgentStreams
from vramline.scheduler.doorkeeper import Admitted
from vramline.scheduler.live import LiveState
from vramline.wire.agent_stream_v1 import MAX_FRAME_BYTES

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class World:
    """Two nodes with one card each. An agent connects as the node in its path."""

    def __init__(self, *, lasts_s: float = 600.0, **limits: int) -> None:
        self.now = 1_000.0
        self.lasts_s = lasts_s
        self.live = LiveState(Rules(), clock=lambda: self.now)
        for name in ("n1", "n2"):
            self.live.set_node(node_object(name))
            self.live.set_report(report({"uuid": f"GPU-{name}", "totalMiB": 8_192}, node=name))
        self.now += 1.0
        self.streams = AgentStreams(self.live.sightings, lambda: self.now, **limits)
        self.url = ""

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        async def talk(connection: ServerConnection) -> None:
            assert connection.request is not None
            node = connection.request.path.strip("/")
            await self.streams.serve(connection, Admitted(node, self.now + self.lasts_s))

        async with serve(talk, "127.0.0.1", 0, max_size=MAX_FRAME_BYTES, close_timeout=0.2) as server:
            self.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield

    @contextlib.asynccontextmanager
    async def agent(self, node: str = "n1", used: int = 0) -> AsyncIterator[StandInAgent]:
        async with contextlib.AsyncExitStack() as open_now:
            if not self.url:
                await open_now.enter_async_context(self.listening())
            yield await open_now.enter_async_context(
                agent_at(f"{self.url}/{node}", card(f"GPU-{node}", used))
            )

    def used(self, node: str) -> Any:
        seen = self.live.fleet.observation(f"GPU-{node}")
        return None if seen is None else seen.used

    def age(self, node: str) -> float:
        seen = self.live.fleet.observation(f"GPU-{node}")
        assert seen is not None
        return self.now - seen.at


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 — what is waited for says nothing
            await asyncio.sleep(0.001)


async def test_a_sample_is_seen_as_old_as_it_says() -> None:
    world = World()
    async with world.agent(used=6_144) as agent:
        await agent.sample(age_ms=250)
        await until(lambda: world.used("n1") == 6_144)

        assert world.age("n1") == 0.25


async def test_a_look_is_answered_by_the_card_as_it_is_now() -> None:
    world = World()
    async with world.agent(used=1_000) as agent:
        await agent.sample()
        await until(lambda: world.streams.speaks("n1"))
        agent.cards["GPU-n1"] = card("GPU-n1", 7_000)

        looked = await world.streams.look("n1", ["GPU-n1"], within_s=10.0)

        assert (looked.problem, looked.missing) == ("", ())
        assert world.used("n1") == 7_000
        assert agent.looked_at == [("GPU-n1",)]


async def test_a_look_at_a_card_that_cannot_be_read_says_so() -> None:
    world = World()
    async with world.agent() as agent:
        await until(lambda: len(world.streams) == 1)
        agent.cards.clear()

        looked = await world.streams.look("n1", ["GPU-n1"], within_s=10.0)

        assert looked.missing == ("GPU-n1",)
        assert "could not read GPU-n1" in looked.problem


async def test_an_answer_with_what_was_seen_before_the_question_is_none() -> None:
    world = World()
    async with world.agent() as agent:
        await until(lambda: len(world.streams) == 1)
        agent.look_age_ms = 2_000

        looked = await world.streams.look("n1", ["GPU-n1"], within_s=10.0)

        assert looked.missing == ("GPU-n1",)


async def test_a_look_that_is_not_answered_ends() -> None:
    world = World()
    async with world.agent() as agent:
        await until(lambda: len(world.streams) == 1)
        agent.answers = False

        looked = await world.streams.look("n1", ["GPU-n1"], within_s=0.02)

        assert looked.problem == "no answer within 20 ms"


async def test_a_look_without_a_stream_is_over_at_once() -> None:
    looked = await World().streams.look("n1", ["GPU-n1"], within_s=3_600.0)

    assert "no stream" in looked.problem


async def test_a_look_at_an_agent_that_leaves_is_over_at_once() -> None:
    world = World()
    async with world.agent() as agent:
        await until(lambda: len(world.streams) == 1)
        agent.answers = False
        look = asyncio.create_task(world.streams.look("n1", ["GPU-n1"], within_s=3_600.0))
        await until(lambda: bool(agent.looked_at))
        await agent.connection.close()

        assert "ended" in (await look).problem


async def test_the_newest_stream_of_a_node_counts() -> None:
    world = World()
    async with world.agent() as older:
        await older.sample()
        await until(lambda: world.used("n1") == 0)
        async with world.agent(used=5_000) as newer:
            await newer.sample()
            await until(lambda: world.used("n1") == 5_000)
            await older.connection.wait_closed()

            assert older.connection.close_code == 4000
            assert len(world.streams) == 1
            assert (await world.streams.look("n1", ["GPU-n1"], within_s=10.0)).problem == ""
            assert newer.looked_at


async def test_no_more_nodes_than_allowed() -> None:
    world = World(most_nodes=1)
    async with world.agent("n1"):
        await until(lambda: len(world.streams) == 1)
        async with world.agent("n2") as second:
            await second.connection.wait_closed()
            assert second.connection.close_code == 4002


async def test_a_stream_ends_with_its_token() -> None:
    world = World(lasts_s=0.05)
    async with world.agent() as agent:
        await agent.connection.wait_closed()

        assert agent.connection.close_code == 4001


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param("nonsense", id="no frame"),
        pytest.param({"kind": "order"}, id="an unknown kind"),
        pytest.param({"kind": "sample", "ageMs": -5, "status": {}}, id="a negative age"),
        pytest.param({"kind": "sample", "ageMs": 0, "status": {"gpus": [{"uuid": "x"}]}}, id="half a card"),
        pytest.param(
            {"kind": "sample", "ageMs": 0, "status": {"gpus": [card("GPU-n2", 8_000)]}}, id="another's card"
        ),
        pytest.param({"kind": "look", "id": 99, "ageMs": 0, "status": {}}, id="an answer nobody asked for"),
    ],
)
async def test_a_frame_that_means_nothing_is_passed_over(frame: object) -> None:
    world = World()
    async with world.agent(used=3_000) as agent:
        await agent.send(frame)
        await agent.sample()
        await until(lambda: world.used("n1") == 3_000)

        assert world.used("n2") != 8_000


async def test_a_binary_frame_is_passed_over() -> None:
    world = World()
    async with world.agent(used=3_000) as agent:
        await agent.connection.send(b"\x00\x01")
        await agent.sample()
        await until(lambda: world.used("n1") == 3_000)


async def test_a_frame_that_is_too_large_ends_its_stream_alone() -> None:
    world = World()
    async with world.agent("n2") as other, world.agent("n1") as agent:
        with contextlib.suppress(ConnectionClosed):
            await agent.connection.send("x" * (MAX_FRAME_BYTES + 1))
        await agent.connection.wait_closed()
        assert agent.connection.close_code == 1009

        await other.sample()
        await until(lambda: world.used("n2") == 0)


async def test_who_floods_is_cut_off() -> None:
    world = World()
    async with world.agent() as agent:
        with contextlib.suppress(ConnectionClosed):
            for _ in range(200):
                await agent.sample()
        await agent.connection.wait_closed()

        assert agent.connection.close_code == 4003


async def test_who_sends_too_much_is_cut_off() -> None:
    world = World()
    async with world.agent() as agent:
        with contextlib.suppress(ConnectionClosed):
            for _ in range(10):
                await agent.send({"kind": "sample", "ageMs": 0, "status": {}, "more": "x" * 900_000})
        await agent.connection.wait_closed()

        assert agent.connection.close_code == 4003


async def test_who_answers_as_often_as_he_is_asked_floods_nobody() -> None:
    world = World()
    async with world.agent() as agent:
        await until(lambda: len(world.streams) == 1)
        for _ in range(150):
            assert (await world.streams.look("n1", ["GPU-n1"], within_s=10.0)).problem == ""

        assert len(agent.looked_at) == 150


async def test_who_asks_while_a_look_is_under_way_shares_the_next_one() -> None:
    world = World()
    async with world.agent() as agent:
        await until(lambda: len(world.streams) == 1)
        looks = [world.streams.look("n1", [f"GPU-{n % 4}", "GPU-n1"], within_s=10.0) for n in range(40)]
        agent.cards |= {f"GPU-{n}": card(f"GPU-{n}", 0) for n in range(4)}

        looked = await asyncio.gather(*looks)

        assert all(each.problem == "" for each in looked)
        assert len(agent.looked_at) <= 2
        assert {uuid for gpus in agent.looked_at for uuid in gpus} == set(agent.cards)


async def test_a_look_that_is_not_answered_keeps_no_later_one_from_being_answered() -> None:
    world = World()
    async with world.agent() as agent:
        await until(lambda: len(world.streams) == 1)
        agent.answers = False
        assert (await world.streams.look("n1", ["GPU-n1"], within_s=0.02)).problem
        agent.answers = True

        assert (await world.streams.look("n1", ["GPU-n1"], within_s=10.0)).problem == ""


async def test_where_there_are_too_many_agents_they_are_asked_to_repeat_themselves_less_often() -> None:
    world = World(most_samples_s=1)
    async with world.agent("n1") as first:
        await until(lambda: len(world.streams) == 1)
        async with world.agent("n2") as second:
            await until(lambda: first.rests == second.rests == [2_000])
        await until(lambda: len(world.streams) == 1)
        async with world.agent("n1"):
            await first.connection.wait_closed()


async def test_few_agents_are_left_alone() -> None:
    world = World()
    async with world.agent("n1") as first, world.agent("n2") as second:
        await until(lambda: len(world.streams) == 2)
        assert (await world.streams.look("n2", ["GPU-n2"], within_s=10.0)).problem == ""

        assert first.rests == second.rests == []
