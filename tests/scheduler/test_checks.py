"""What the real-time check came to, in the words and fields people grep for, and not too often."""

import msgspec
import pytest
import structlog
from structlog.typing import EventDict

from builders import gpu, node, observation, process
from vramline.decide.engine import decide
from vramline.model.ask import Ask, MibSize, RealtimeMode
from vramline.model.fleet import Fleet
from vramline.model.rules import Rules
from vramline.scheduler.checks import Checks
from vramline.telemetry.tallies import Happening
from vramline.units import Mib

STRICT, WARNING, DISABLED = RealtimeMode.STRICT, RealtimeMode.WARNING, RealtimeMode.DISABLED


class World:
    """One card of 8,192 MiB of which nobody's process uses 6,144, and a pod that asks for 4,096."""

    def __init__(self, used: int | None = 6_144) -> None:
        self.now = 100.0
        self.fleet = Fleet()
        self.fleet.set_node(node("node-1", gpu("GPU-12345", total=8_192, node="node-1")))
        if used is not None:
            self.fleet.observe("GPU-12345", observation(used, process(used), utilization_percent=45))
        self.checks = Checks(lambda: self.now)

    def decide(self, mode: RealtimeMode) -> list[EventDict]:
        ask = Ask(pod="default/my-pod", pod_uid="u", gpus=1, size=MibSize(Mib(4_096)))
        decision = decide(self.fleet, ask, Rules(mode=mode), now=100.0)
        with structlog.testing.capture_logs() as lines:
            self.checks.refused(self.fleet, decision)
            self.checks.placed(self.fleet, decision)
        return list(lines)

    def count(self, mode: RealtimeMode, result: str) -> int:
        return self.checks.tallies.of(Happening.CHECKS, mode, result)


@pytest.mark.parametrize("mode", [STRICT, WARNING])
def test_a_card_that_the_books_would_give_is_named_when_the_check_fails(mode: RealtimeMode) -> None:
    world = World()
    (line,) = world.decide(mode)

    assert line == {
        "event": "Real-time memory check failed",
        "log_level": "info",
        "pod": "default/my-pod",
        "device": "GPU-12345",
        "requestedMem": 4_096,
        "realUsedMem": 6_144,
        "totalMem": 8_192,
        "nodeID": "node-1",
        "freeMem": 1_948,
        "mode": mode.value,
    }
    assert world.count(mode, "failed") == 1


def test_the_same_is_not_said_again_within_a_minute_but_counted() -> None:
    world = World()
    lines = world.decide(STRICT) + world.decide(STRICT)
    world.now += 61.0
    lines += world.decide(STRICT)

    assert len(lines) == 2
    assert world.count(STRICT, "failed") == 3


def test_a_check_that_passes_is_counted_and_not_told() -> None:
    world = World(used=0)

    assert world.decide(STRICT) == []
    assert world.count(STRICT, "passed") == 1


def test_a_card_that_nobody_saw_is_told_once_a_minute() -> None:
    world = World(used=None)
    lines = world.decide(STRICT) + world.decide(STRICT)

    assert lines == [
        {
            "event": "Failed to get real-time usage, using cached data",
            "log_level": "info",
            "nodeID": "node-1",
            "deviceID": "GPU-12345",
            "error": "nobody ever looked",
        }
    ]
    assert world.count(STRICT, "fallen_back") == 2


def test_disabled_checks_nothing() -> None:
    world = World()

    assert world.decide(DISABLED) == []
    assert [world.count(DISABLED, result) for result in ("passed", "failed", "fallen_back")] == [0, 0, 0]


def test_a_pod_that_the_books_refuse_too_was_not_refused_by_the_check() -> None:
    world = World()
    taken = msgspec.structs.replace(gpu("GPU-12345", total=4_000, node="node-1"))
    world.fleet.set_node(node("node-1", taken))

    assert world.decide(STRICT) == []
    assert world.count(STRICT, "failed") == 0


def test_a_live_look_is_told_with_what_was_known_before() -> None:
    world = World()
    before = observation(0)
    with structlog.testing.capture_logs() as lines:
        world.checks.updated("node-1", "GPU-12345", before, world.fleet.observation("GPU-12345"))

    assert lines == [
        {
            "event": "Updated real-time device usage",
            "log_level": "debug",
            "nodeID": "node-1",
            "deviceID": "GPU-12345",
            "cachedUsedMemMB": 0,
            "realTimeUsedMemMB": 6_144,
            "utilization": 45,
            "processCount": 1,
        }
    ]
