"""Reading cards through a probe that fails, hangs or makes mistakes."""

import asyncio
import threading
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from agent.readings import reading
from vramline.agent.attribution import Attributor
from vramline.agent.figures import Figures
from vramline.agent.reporting import NodeFacts
from vramline.agent.sampler import Sampler, next_tick
from vramline.agent.source import CardSource, Look
from vramline.model.gpu import Health
from vramline.probes.device import DeviceProbe, DeviceReading, Failed, HealthEvent, ProbeError


class ScriptedProbe:
    """Does what a test says, with the contract of a `DeviceProbe`."""

    vendor = "nvidia"
    source = "a test"

    def __init__(self, *readings: DeviceReading) -> None:
        self.readings = list(readings)
        self.opens = 0
        self.on_open: Callable[[], object] = lambda: None
        self.on_read: Callable[[], object] = lambda: None
        self.faults: list[HealthEvent] = []
        self.asked: list[Collection[str] | None] = []

    def open(self) -> None:
        self.opens += 1
        self.on_open()

    def read(self, uuids: Collection[str] | None = None) -> list[DeviceReading]:
        self.asked.append(uuids)
        self.on_read()
        return [each for each in self.readings if uuids is None or each.uuid in uuids]

    def events(self, timeout_s: float) -> list[HealthEvent]:
        found, self.faults = self.faults, []
        if not found:
            threading.Event().wait(min(timeout_s, 0.01))
        return found

    def close(self) -> None:
        """Nothing to let go."""


def no_driver() -> None:
    raise ProbeError("NVML", code="DRIVER_NOT_LOADED", cause="no driver", advice="Load it.")


def wrong() -> None:
    raise ValueError("a mistake of the probe's author")


class World:
    """A source on a clock that a test moves."""

    def __init__(self, probe: DeviceProbe) -> None:
        self.now = 0.0
        self.source = CardSource(probe, 0.2, lambda: self.now)


def look_at(probe: DeviceProbe, *times: float, then: Callable[[], None] = lambda: None) -> list[Look]:
    """Look once at each time; before the last look something happens."""

    async def run() -> list[Look]:
        world, looks = World(probe), []
        for number, at in enumerate(times):
            world.now = at
            if number == len(times) - 1:
                then()
            looks.append(await world.source.look())
        return looks

    return asyncio.run(run())


def test_a_library_that_cannot_be_opened_is_left_alone_for_a_while() -> None:
    probe = ScriptedProbe(reading())
    probe.on_open = no_driver

    looks = look_at(probe, 0.0, 1.0, 9.0, 10.0)

    assert probe.opens == 2
    assert [look.failure for look in looks] == [Failed("DRIVER_NOT_LOADED", "no driver")] * 4
    assert "Load it." in looks[0].notes[0]


def test_a_library_that_comes_back_is_used_again() -> None:
    probe = ScriptedProbe(reading())
    probe.on_open = no_driver

    def load() -> None:
        probe.on_open = lambda: None

    looks = look_at(probe, 0.0, 11.0, then=load)

    assert [len(look.cards) for look in looks] == [0, 1]


@pytest.mark.parametrize("trouble", [no_driver, wrong], ids=["the library", "a mistake"])
def test_a_look_that_fails_makes_known_cards_unknown_and_opens_anew(trouble: Callable[[], None]) -> None:
    probe = ScriptedProbe(reading())

    def break_down() -> None:
        probe.on_read = trouble

    _, look = look_at(probe, 0.0, 1.0, then=break_down)

    assert [card.condition.health for card in look.cards] == [Health.SUSPECT]
    assert isinstance(look.cards[0].reading, Failed)


def test_a_probe_that_hangs_is_not_waited_for_and_its_late_answer_is_not_used() -> None:
    release = threading.Event()
    probe = ScriptedProbe(reading())

    def hang() -> None:
        probe.on_read = lambda: release.wait(10)

    _, look = look_at(probe, 0.0, 1.0, then=hang)
    release.set()

    assert look.failure is not None
    assert look.failure.code == "TIMEOUT"
    assert isinstance(look.cards[0].reading, Failed)


def test_a_fault_that_the_driver_reports_counts_at_the_next_look() -> None:
    probe = ScriptedProbe(reading())
    probe.faults = [HealthEvent(uuid="GPU-a", xid=79, text="")]

    async def run() -> Look:
        world = World(probe)
        await world.source.look()
        following = asyncio.create_task(world.source.follow_events())
        async with asyncio.timeout(60):
            while probe.faults or not world.source._events:  # noqa: ASYNC110 — it waits for a list
                await asyncio.sleep(0.005)
        following.cancel()
        return await world.source.look()

    assert asyncio.run(run()).cards[0].condition.health is Health.UNHEALTHY


def test_a_glance_reads_only_what_was_asked_for() -> None:
    probe = ScriptedProbe(reading("GPU-a"), reading("GPU-b", index=1))

    async def run() -> list[str]:
        world = World(probe)
        await world.source.look()
        return [card.identity.uuid for card in await world.source.glance(["GPU-b"])]

    assert asyncio.run(run()) == ["GPU-b"]
    assert probe.asked == [None, ["GPU-b"]]


def test_a_glance_at_what_hangs_is_empty_rather_than_old() -> None:
    probe = ScriptedProbe(reading("GPU-a"))

    async def run() -> int:
        world = World(probe)
        await world.source.look()
        probe.on_read = no_driver
        return len(await world.source.glance(["GPU-a"]))

    assert asyncio.run(run()) == 0


def test_one_vendors_trouble_is_not_the_others() -> None:
    broken, well = ScriptedProbe(), ScriptedProbe(reading("GPU-b"))
    broken.on_open = no_driver
    figures = Figures()
    sampler = Sampler(
        NodeFacts(node="n1"), (broken, well), Attributor(Path("/proc")), figures, clock=lambda: 0.0
    )

    report = asyncio.run(sampler.sample()).report

    assert [gpu.uuid for gpu in report.gpus or ()] == ["GPU-b"]
    assert "DRIVER_NOT_LOADED" in figures.read_errors
    assert any("no driver" in note for note in report.notes)


def test_ticks_do_not_drift_and_lost_ones_are_not_made_up_for() -> None:
    tick, seen = 0.0, []
    for late in (0.3, 0.0, 2.7, 0.1):
        tick = next_tick(tick, tick + late, 1.0)
        seen.append(tick)

    assert seen == [1.0, 2.0, 5.0, 6.0]
