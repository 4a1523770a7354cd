"""The live look at bind: what the card says in that moment decides, and nobody waits for who is not there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from random import Random

import pytest
from websockets.asyncio.server import ServerConnection, serve

from kubernetes_builders import node_object, pod_object, report
from scheduler.agent_clients import StandInAgent, agent_at, card
from scheduler.memory_store import MemoryStore
from vramline.model.rules import Rules
from vramline.scheduler.agent_streams import AgentStreams
from vramline.scheduler.commit import Committer
from vramline.scheduler.doorkeeper import Admitted
from vramline.scheduler.eyes import Eyes
from vramline.scheduler.live import LiveState
from vramline.telemetry.tallies import Happening
from vramline.wire import keys

pytestmark = pytest.mark.anyio

CARDS = ("GPU-a", "GPU-b")
TOTAL = 8_192


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class World:
    """One node with two cards of 8 GiB, a pod that asks for 4 GiB, and an agent."""

    def __init__(self, annotations: dict[str, str] | None = None, *, within_s: float = 30.0) -> None:
        self.now = 1_000.0
        self.store = MemoryStore(Random(1))
        self.live = LiveState(Rules(), clock=lambda: self.now)
        self.live.set_node(node_object("n1"))
        self.live.set_report(report(*({"uuid": uuid, "totalMiB": TOTAL, "usedMiB": 0} for uuid in CARDS)))
        self.now += 1.0
        wishes = {keys.VRAM: "4096", **(annotations or {})}
        self.store.create_pod(
            pod_object(annotations=wishes, meta={"name": "p", "namespace": "ns", "uid": "uid-1"})
        )
        self.store.watch(self.live)
        self.streams = AgentStreams(self.live.sightings, lambda: self.now)
        self.eyes = Eyes(self.live, self.streams, within_s=within_s)
        self.committer = Committer(self.live, self.store, lambda: 1, eyes=self.eyes, apart_s=0.0)

    @contextlib.asynccontextmanager
    async def agent(self, *, first_used: int = 0) -> AsyncIterator[StandInAgent]:
        """Connect an agent that has said once how the cards are."""

        async def talk(connection: ServerConnection) -> None:
            await self.streams.serve(connection, Admitted("n1", self.now + 600.0))

        async with serve(talk, "127.0.0.1", 0, close_timeout=0.2) as server:
            url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with agent_at(url, *(card(uuid, first_used) for uuid in CARDS)) as agent:
                await agent.sample()
                await until(lambda: self.streams.speaks("n1"))
                yield agent

    async def bind(self) -> str:
        return (await self.committer.bind("uid-1", "n1")).refused

    def allocation(self) -> str:
        return (self.store.pods["uid-1"].metadata.annotations or {}).get(keys.VISIBLE_DEVICES, "")

    def tally(self, happening: Happening, *labels: str) -> int:
        return self.eyes.checks.tallies.of(happening, *labels)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 — what is waited for says nothing
            await asyncio.sleep(0.001)


async def test_a_spike_after_the_last_sample_is_seen_and_nothing_is_lost_by_it() -> None:
    world = World()
    async with world.agent() as agent:
        agent.cards = {uuid: card(uuid, 6_144) for uuid in CARDS}

        refusal = await world.bind()

        assert "InsufficientVram" in refusal
        assert "short by 2,148 MiB" in refusal
        assert world.store.writes == 0
        assert not world.live.is_held("uid-1")
        assert world.tally(Happening.CHANGED, "strict", "refused") == 1
        world.live.sightings.freed.clear()

        world.now += 0.1
        agent.cards = {uuid: card(uuid, 0) for uuid in CARDS}
        await agent.sample()
        await until(lambda: world.live.sightings.freed == {"n1"})
        assert await world.bind() == ""
        assert world.store.writes == 2


async def test_another_card_of_the_node_is_taken_where_the_first_turns_out_to_be_full() -> None:
    world = World()
    async with world.agent() as agent:
        agent.cards["GPU-a"] = card("GPU-a", 6_144)

        assert await world.bind() == ""
        assert world.allocation() == "GPU-b"
        assert agent.looked_at == [("GPU-a",), ("GPU-b",)]
        assert world.tally(Happening.CHANGED, "strict", "other_gpu") == 1
        assert world.tally(Happening.LOOKS, "answered") == 2
        assert world.tally(Happening.CHECKS, "strict", "passed") == 1


async def test_an_agent_that_does_not_answer_leaves_its_freshest_sample() -> None:
    world = World(within_s=0.05)
    async with world.agent(first_used=6_144) as agent:
        agent.answers = False
        assert "InsufficientVram" in await world.bind()
        assert agent.looked_at == []  # nothing to look at: not even the sample has room

    world = World(within_s=0.05)
    async with world.agent() as agent:
        agent.answers = False
        assert await world.bind() == ""
        assert world.tally(Happening.LOOKS, "fallen_back") == 1


async def test_without_a_stream_nobody_waits() -> None:
    world = World()

    assert await world.bind() == ""
    assert world.tally(Happening.LOOKS, "fallen_back") == world.tally(Happening.LOOKS, "answered") == 0


async def test_a_silent_stream_is_not_asked() -> None:
    world = World()
    async with world.agent() as agent:
        world.now += 6.0

        assert await world.bind() == ""
        assert agent.looked_at == []


@pytest.mark.parametrize(
    ("mode", "bound", "looks"), [("strict", False, 2), ("warning", True, 3), ("disabled", True, 0)]
)
async def test_each_mode_does_with_the_look_what_it_says(mode: str, bound: bool, looks: int) -> None:
    world = World({keys.REALTIME_CHECK: mode})
    async with world.agent() as agent:
        agent.cards = {uuid: card(uuid, 6_144) for uuid in CARDS}

        assert (await world.bind() == "") is bound
        assert len(agent.looked_at) == looks
        assert world.tally(Happening.CHECKS, mode, "failed") == (0 if mode == "disabled" else 1)


async def test_what_happens_during_the_look_counts() -> None:
    world = World(within_s=3.0)
    async with world.agent() as agent:
        agent.answers = False
        binding = asyncio.create_task(world.bind())
        await until(lambda: bool(agent.looked_at))
        world.live.drop_pod("uid-1")

        assert await binding == "no pod with UID uid-1"
        assert world.store.writes == 0


async def test_two_binds_of_one_pod_at_once_bind_it_once() -> None:
    world = World()
    async with world.agent():
        outcomes = await asyncio.gather(world.bind(), world.bind())

        assert sorted(map(bool, outcomes)) == [False, True]
        assert world.store.writes == 2
