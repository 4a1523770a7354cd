"""What the history writes down about cards: changes, and no more."""

from collections import deque

import msgspec

from builders import claim, gpu, node, observation, process
from vramline.explain.chronicle import CardEvent, CardEventKind
from vramline.model.claim import ClaimState
from vramline.model.gpu import Health
from vramline.model.rules import Rules
from vramline.scheduler.sampling import CardSampler
from vramline.simulate.cluster import EmbeddedCluster
from vramline.telemetry.archive_file import CardRow


class World:
    """A cluster of two cards on one node, and what was written down about them."""

    def __init__(self) -> None:
        self.at = 1_000.0
        self.cluster = EmbeddedCluster(Rules(max_age_s=90.0), clock=lambda: self.at)
        self.node = node("n1", gpu("GPU-a"), gpu("GPU-b"))
        self.cluster.set_node(self.node)
        self.rows: list[CardRow] = []
        self.events: list[CardEvent] = []
        self.sampler = CardSampler(self.cluster, self._take, grace_s=60.0)

    def _take(self, rows: object, events: object) -> None:
        self.rows += rows  # type: ignore[arg-type]
        self.events += events  # type: ignore[arg-type]

    def sample(self, after_s: float = 10.0) -> list[CardRow]:
        """Let time pass; return what is written down then."""
        self.at += after_s
        self.rows = []
        deque(self.sampler.sample(), maxlen=0)
        return self.rows


def test_a_card_is_written_down_when_it_changes_and_every_ten_minutes() -> None:
    world = World()
    world.cluster.observe("GPU-a", observation(500, at=world.at))

    assert {row.gpu for row in world.sample(0.0)} == {"GPU-a", "GPU-b"}
    assert world.sample() == []
    world.cluster.observe("GPU-a", observation(700, at=world.at))
    assert [(row.gpu, row.sample.used_mib) for row in world.sample()] == [("GPU-a", 700)]
    for _ in range(6):
        world.cluster.observe("GPU-a", observation(700, at=world.at))
        assert world.sample(80.0) == []
    assert [row.gpu for row in world.sample(580.0 - 480.0)] == ["GPU-a", "GPU-b"]


def test_what_nobody_saw_is_unknown_and_a_look_that_grows_old_too() -> None:
    world = World()
    world.cluster.observe("GPU-a", observation(500, at=world.at))
    rows = {row.gpu: row.sample for row in world.sample(0.0)}

    assert rows["GPU-a"].used_mib == 500
    assert rows["GPU-b"].used_mib is None
    assert rows["GPU-b"].unmanaged_mib is None
    late = world.sample(91.0)
    assert [(row.gpu, row.sample.used_mib) for row in late] == [("GPU-a", None)]
    assert [(event.gpu, event.kind) for event in world.events] == [("GPU-a", CardEventKind.SIGHT)]


def test_claims_are_held_memory() -> None:
    world = World()
    world.sample()
    world.cluster.fleet.adopt([claim(8_000, "ns/p", gpu="GPU-b")])

    assert [(row.gpu, row.sample.held_mib) for row in world.sample()] == [("GPU-b", 8_000)]


def test_a_change_of_health_is_an_event_and_a_new_node_moves_nothing() -> None:
    world = World()
    world.sample()
    sick = msgspec.structs.replace(world.node.gpus[1], health=Health.SUSPECT)
    world.cluster.set_node(msgspec.structs.replace(world.node, gpus=(world.node.gpus[0], sick)))
    world.cluster.set_node(node("n0", gpu("GPU-c")))

    assert {row.gpu for row in world.sample()} == {"GPU-c"}
    assert [(event.gpu, event.text) for event in world.events] == [("GPU-b", "was Healthy, is Suspect")]


def test_memory_that_outlives_its_pod_is_told_when_it_shows_and_when_it_is_gone() -> None:
    world = World()
    ended = claim(8_000, "ns/p")
    ended = msgspec.structs.replace(ended, state=ClaimState.RELEASING, started_at=1.0, ended_at=world.at)
    world.cluster.fleet.adopt([ended])
    left = process(8_000, "ns/p", 7)
    world.cluster.observe("GPU-a", observation(8_000, left, at=world.at + 70.0))
    world.sample(75.0)
    world.sample(1.0)
    world.cluster.observe("GPU-a", observation(0, at=world.at))
    world.sample(1.0)

    told = [event.text for event in world.events if event.kind is CardEventKind.GHOST]
    assert len(told) == 2
    assert "process 7 of it still holds 8,000 MiB" in told[0]
    assert told[1] == "what ns/p left behind is gone"


def test_many_cards_are_written_down_in_parts_that_tell_of_one_moment() -> None:
    world = World()
    cards = [gpu(f"GPU-{number:04d}") for number in range(2_500)]
    world.cluster.set_node(node("n2", *cards))
    parts = world.sampler.sample()

    told = [next(parts)]
    for card in cards:
        world.cluster.observe(card.uuid, observation(700, at=world.at))
    told += parts

    assert told == [1_000, 1_000, 502]
    assert {row.sample.used_mib for row in world.rows} == {None}
    assert len({row.gpu for row in world.rows}) == 2_502
    assert {row.sample.used_mib for row in world.sample(0.0)} == {700}
