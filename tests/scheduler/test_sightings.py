"""Which look at a card counts: by source, by age, by our own clock."""

from typing import Any

import msgspec
import pytest

from kubernetes_builders import node_object, report
from vramline.decide.engine import decide
from vramline.model.ask import Ask, MibSize
from vramline.model.claim import Claim
from vramline.model.observation import Observation, ObservationSource
from vramline.model.rules import Rules
from vramline.scheduler.live import LiveState
from vramline.units import Mib
from vramline.wire.report_v1alpha1 import GpuReport

CARD = "GPU-n1"
TOTAL = 8_192


class World:
    """One node with one card of 8 GiB, and a clock that is told."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.live = LiveState(Rules(), clock=lambda: self.now)
        self.live.set_node(node_object("n1"))

    def report(self, used: int | None, *, at: float, **card: Any) -> None:
        self.live.set_report(self._seen(used, at, **card))

    def sample(
        self,
        used: int | None,
        *,
        at: float | None = None,
        source: ObservationSource = ObservationSource.STREAM,
        **card: Any,
    ) -> int:
        seen = self._seen(used, self.now if at is None else at, **card)
        return self.live.sightings.take_sample(seen, source)

    def free(self) -> int:
        """What strict mode would promise now."""
        self.live.sightings.expire()
        ask = Ask(pod="ns/p", pod_uid="u", gpus=1, size=MibSize(Mib(1)))
        decision = decide(self.live.fleet, ask, self.live.rules, now=self.now)
        return int(decision.free[0])

    def age(self) -> float:
        self.live.sightings.expire()
        return self.now - float(self.live.fleet.columns.observed_at[0])

    def source(self) -> ObservationSource:
        seen = self.live.fleet.observation(CARD)
        assert seen is not None
        return seen.source

    def _seen(self, used: int | None, at: float, **card: Any) -> GpuReport:
        listed: list[dict[str, Any]] = [] if used is None else [{"pid": 1, "usedMiB": used, "podUID": None}]
        fields = {"uuid": CARD, "index": 0, "totalMiB": TOTAL, "usedMiB": used, "processes": listed, **card}
        told = report({key: value for key, value in fields.items() if value is not None})
        return msgspec.structs.replace(told, observed_at=at)


@pytest.fixture
def world() -> World:
    made = World()
    made.report(1_000, at=990.0)
    return made


def test_a_report_counts_while_it_is_young(world: World) -> None:
    assert world.free() == TOTAL - 100 - 1_000


def test_a_sample_counts_instead_of_an_older_report(world: World) -> None:
    world.sample(6_000)

    assert world.free() == TOTAL - 100 - 6_000
    assert world.source() is ObservationSource.STREAM


def test_a_silent_stream_falls_back_to_the_report_as_old_as_that_is(world: World) -> None:
    world.sample(6_000)
    world.now += 5.0

    assert world.free() == TOTAL - 100 - 1_000
    assert world.age() == 15.0
    assert world.source() is ObservationSource.REPORT


def test_a_silent_stream_without_a_young_report_leaves_the_books(world: World) -> None:
    world.now += 85.0
    world.sample(6_000)
    world.now += 5.1

    assert world.free() == TOTAL - 100
    assert world.age() == pytest.approx(5.1)


def test_a_report_that_comes_late_counts_where_the_stream_has_fallen_silent(world: World) -> None:
    world.now += 85.0
    world.sample(6_000)
    world.now += 6.0
    assert world.free() == TOTAL - 100

    late = Observation(at=world.now - 7.0, used=Mib(2_000), processes=())
    world.live.sightings.take_told("n1", {CARD: late})

    assert world.free() == TOTAL - 2_000
    assert world.age() == 7.0


def test_a_sample_that_is_void_counts_for_nothing_even_before_anybody_notices(world: World) -> None:
    world.sample(6_000)
    world.now += 5.0

    assert not world.live.fleet.columns.is_fresh(0, now=world.now, max_age_s=90.0)


def test_a_report_changes_nothing_while_the_stream_speaks(world: World) -> None:
    world.sample(6_000)
    world.report(2_000, at=1_000.5)

    assert world.free() == TOTAL - 100 - 6_000
    world.now += 5.0
    assert world.free() == TOTAL - 100 - 2_000


def test_a_report_from_the_future_is_as_old_as_it_is_known(world: World) -> None:
    world.report(2_000, at=5_000.0)

    assert world.age() == 0.0
    world.now += 91.0
    world.report(2_000, at=5_000.0)  # the same object, listed again
    assert world.age() == 91.0
    assert world.free() == TOTAL - 100


def test_a_new_report_from_the_future_is_news(world: World) -> None:
    world.report(2_000, at=5_000.0)
    world.now += 91.0
    world.report(3_000, at=5_091.0)

    assert world.age() == 0.0
    assert world.free() == TOTAL - 100 - 3_000


def test_a_card_that_vanishes_from_the_samples_is_not_seen_by_them(world: World) -> None:
    world.sample(6_000)
    world.now += 4.0
    world.live.sightings.take_sample(msgspec.structs.replace(report(), observed_at=world.now))
    world.now += 1.0

    assert world.source() is ObservationSource.STREAM
    assert world.free() == TOTAL - 100 - 1_000


def test_a_card_that_does_not_tell_its_use_is_not_seen(world: World) -> None:
    world.sample(None)

    assert world.free() == TOTAL - 100


def test_an_unknown_card_harms_nobody(world: World) -> None:
    assert world.sample(6_000, uuid="GPU-elsewhere") == 1
    assert world.free() == TOTAL - 100 - 1_000


def test_nobody_can_speak_of_another_nodes_card(world: World) -> None:
    world.live.set_node(node_object("n2"))
    seen = report({"uuid": CARD, "totalMiB": TOTAL, "usedMiB": 8_000}, node="n2")

    assert world.live.sightings.take_sample(msgspec.structs.replace(seen, observed_at=world.now)) == 1
    assert world.free() == TOTAL - 100 - 1_000


def test_a_report_that_only_looks_again_does_not_read_the_node_again(world: World) -> None:
    before = world.live.fleet.node("n1")
    world.report(2_000, at=999.0)

    assert world.live.fleet.node("n1") is before
    assert world.free() == TOTAL - 100 - 2_000


def test_a_report_of_another_card_reads_the_node_again(world: World) -> None:
    world.report(2_000, at=999.0, health="Unhealthy")

    node = world.live.fleet.node("n1")
    assert node is not None
    assert node.gpus[0].health == "Unhealthy"


@pytest.mark.parametrize(
    ("used", "freed"), [(1_000, False), (6_000, False), (500, True)], ids=["the same", "more used", "less"]
)
def test_memory_that_became_free_is_noticed(world: World, used: int, freed: bool) -> None:
    world.sample(1_000)
    world.live.sightings.freed.clear()
    world.now += 1.0
    world.sample(used)

    assert (world.live.sightings.freed == {"n1"}) is freed


def test_samples_that_say_the_same_change_nothing_but_the_age(world: World) -> None:
    world.sample(1_000)
    generation = world.live.fleet.generation
    world.now += 1.0
    world.sample(1_000)

    assert world.live.fleet.generation == generation
    assert world.age() == 0.0


def test_a_picture_of_a_node_is_as_young_as_its_newest_sample(world: World) -> None:
    world.sample(1_000)
    world.live.fleet.only("n1")
    for _ in range(6):
        world.now += 1.0
        world.sample(1_000)

    assert world.live.fleet.only("n1").columns.is_fresh(0, now=world.now, max_age_s=90.0)


def test_a_look_between_two_equal_samples_is_not_taken_for_them(world: World) -> None:
    world.sample(1_000)
    world.sample(1_000, uuid="GPU-elsewhere")
    world.now += 1.0
    world.sample(6_000)
    world.now += 1.0
    world.sample(1_000)

    assert world.free() == TOTAL - 100 - 1_000


def test_how_busy_a_card_is_is_new_with_every_sample(world: World) -> None:
    world.sample(1_000, utilizationPercent=10)
    world.now += 1.0
    world.sample(1_000, utilizationPercent=90)

    seen = world.live.fleet.observation(CARD)
    assert seen is not None
    assert seen.utilization_percent == 90
    assert world.live.fleet.columns.utilization[0] == 90.0


def test_a_pod_that_started_between_two_equal_samples_is_counted_anew(world: World) -> None:
    world.sample(1_000, processes=None)
    claim = Claim(pod_uid="u", pod="ns/p", gpu=CARD, mib=Mib(500), started_at=world.now + 0.5)
    world.live.fleet.adopt([claim])
    assert world.free() == TOTAL - 100 - 500 - 1_000
    world.now += 1.0
    world.sample(1_000, processes=None)

    assert world.free() == TOTAL - 100 - 500 - 500


def test_a_node_that_left_is_not_looked_for(world: World) -> None:
    world.sample(6_000)
    world.live.drop_node("n1")
    world.now += 5.0
    world.live.sightings.expire()

    world.live.set_node(node_object("n1"))
    assert world.live.fleet.node("n1") is not None


def test_who_looked_last_is_told_though_the_card_has_not_changed(world: World) -> None:
    world.sample(500)
    world.sample(500, source=ObservationSource.LOOK)
    assert world.source() is ObservationSource.LOOK

    world.now += 1
    world.sample(500)
    assert world.source() is ObservationSource.STREAM
