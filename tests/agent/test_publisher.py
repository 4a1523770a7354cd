"""When the report is written, and what happens while the API server is away."""

import asyncio
import random
from collections.abc import Callable

from vramline.agent.publisher import Allowance, Publisher, PublishingRules
from vramline.errors import TransientError
from vramline.kube.pace import Pace
from vramline.wire.report_v1alpha1 import GpuReport, ReportedGpu

RULES = PublishingRules(pace=Pace(first_s=0.001, most_s=0.002))


def report(used: int) -> GpuReport:
    return GpuReport(node="n1", gpus=(ReportedGpu(uuid="GPU-a", total_mib=80_000, used_mib=used),))


class Store:
    """Remembers what was written, and can be away."""

    def __init__(self) -> None:
        self.written: list[GpuReport] = []
        self.attempts = 0
        self.is_away = False

    async def write(self, report: GpuReport) -> None:
        self.attempts += 1
        if self.is_away:
            raise TransientError("no connection")
        self.written.append(report)


class World:
    """A publisher on a clock that stands still until it is moved."""

    def __init__(self, rules: PublishingRules = RULES) -> None:
        self.now = 0.0
        self.store = Store()
        self.publisher = Publisher(self.store, rules, clock=lambda: self.now, rng=random.Random(7))

    async def offer(self, used: int) -> None:
        self.publisher.offer(report(used))
        await settle()

    def uses(self) -> list[int | None]:
        return [each.gpus[0].used_mib for each in self.store.written if each.gpus]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def wait_for(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 — it waits for a counter
            await asyncio.sleep(0.001)


def play(story: Callable[[World], "asyncio.Future[None] | object"]) -> World:
    world = World()

    async def run() -> None:
        running = asyncio.create_task(world.publisher.run())
        await story(world)  # type: ignore[misc]
        running.cancel()

    asyncio.run(run())
    return world


def test_the_first_report_and_every_change_are_written_and_nothing_else() -> None:
    async def story(world: World) -> None:
        for used in (1000, 1000, 1010, 2000, 2000):
            await world.offer(used)

    assert play(story).uses() == [1000, 2000]


def test_slow_growth_is_measured_from_what_was_written() -> None:
    async def story(world: World) -> None:
        for used in range(1000, 1100, 10):
            await world.offer(used)

    assert play(story).uses() == [1000, 1070]


def test_after_half_a_minute_a_report_is_written_though_nothing_changed() -> None:
    async def story(world: World) -> None:
        for second in range(65):
            world.now = float(second)
            await world.offer(1000)

    assert play(story).uses() == [1000, 1000, 1000]


def test_a_card_that_changes_all_the_time_does_not_flood_the_api_server() -> None:
    async def story(world: World) -> None:
        for second in range(100):
            world.now = float(second)
            await world.offer(second * 100)

    written = play(story).uses()

    assert written[:5] == [0, 100, 200, 300, 400]
    assert 5 + 16 <= len(written) <= 5 + 21


def test_while_the_api_server_is_away_the_newest_report_waits() -> None:
    async def story(world: World) -> None:
        world.store.is_away = True
        for used in (1000, 2000, 3000):
            await world.offer(used)
        await wait_for(lambda: world.store.attempts > 3)
        world.store.is_away = False
        await wait_for(lambda: bool(world.store.written))

    world = play(story)

    assert world.uses() == [3000]
    assert (world.publisher.writes, world.publisher.failures > 0) == (1, True)


def test_at_the_end_what_was_not_written_is() -> None:
    world = World()

    async def run() -> None:
        world.publisher.offer(report(5))
        await world.publisher.flush()
        await world.publisher.flush()

    asyncio.run(run())

    assert world.uses() == [5]


def test_an_allowance_fills_up_again_but_not_over() -> None:
    allowance = Allowance(PublishingRules(burst=2, refill_s=5.0), 0.0)

    assert [allowance.take(at) for at in (0.0, 0.0, 0.0, 5.0, 5.0)] == [True, True, False, True, False]
    assert [allowance.take(at) for at in (500.0, 500.0, 500.0)] == [True, True, False]
