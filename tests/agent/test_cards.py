"""What is remembered of a card, and what never is."""

from typing import Any

import pytest

from agent.readings import LOST, reading
from vramline.agent.cards import Cards, SeenCard
from vramline.model.gpu import Health
from vramline.probes.device import DeviceReading, Failed, HealthEvent, HealthFacts, Link
from vramline.units import Mib

TIMEOUT = Failed("TIMEOUT", "no answer within 2 s")


def look(*readings: DeviceReading, cards: Cards | None = None, at: float = 0.0) -> dict[str, SeenCard]:
    seen = (cards or Cards()).look(readings, (), at)
    return {card.identity.uuid: card for card in seen}


def test_a_card_that_is_lost_is_unhealthy_and_keeps_what_it_is() -> None:
    cards = Cards()
    look(reading(), cards=cards)

    seen = look(reading(total=LOST, used=LOST, model=LOST, reserved=LOST), cards=cards, at=1.0)["GPU-a"]

    assert (seen.identity.total, seen.identity.model) == (81_559, "NVIDIA H100")
    assert seen.condition.health is Health.UNHEALTHY
    assert "GPU_IS_LOST" in seen.condition.why


def test_who_is_linked_stays_so_while_a_card_does_not_answer() -> None:
    cards, pair = Cards(), [Link(peer="GPU-a", nvlink=True), Link(peer="GPU-b", nvlink=True)]
    first, second = reading("GPU-a", links=(pair[1],)), reading("GPU-b", index=1, links=(pair[0],))
    look(first, second, cards=cards)

    seen = look(reading("GPU-a", links=LOST), second, cards=cards, at=1.0)

    assert [each.identity.link_group for each in seen.values()] == [0, 0]


def test_one_bad_card_does_not_touch_the_others() -> None:
    seen = look(reading("GPU-a", used=TIMEOUT), reading("GPU-b", index=1))

    assert [each.condition.health for each in seen.values()] == [Health.SUSPECT, Health.HEALTHY]


def test_a_look_that_fails_altogether_puts_every_card_in_doubt_and_forgets_what_they_did() -> None:
    cards = Cards()
    look(reading(), cards=cards)

    (seen,) = cards.miss(TIMEOUT, 1.0)

    assert (seen.reading, seen.condition.health) == (TIMEOUT, Health.SUSPECT)
    assert seen.identity.total == 81_559


def test_a_card_that_is_not_listed_any_more_is_unhealthy() -> None:
    cards = Cards()
    look(reading("GPU-a"), reading("GPU-b", index=1), cards=cards)

    seen = look(reading("GPU-a"), cards=cards, at=1.0)

    assert isinstance(seen["GPU-b"].reading, Failed)
    assert seen["GPU-b"].condition.health is Health.UNHEALTHY


def test_a_card_whose_place_another_one_has_is_forgotten() -> None:
    cards = Cards()
    look(reading("GPU-a"), cards=cards)

    assert set(look(reading("GPU-new"), cards=cards, at=1.0)) == {"GPU-new"}


def test_a_card_without_a_uuid_is_named() -> None:
    cards = Cards()
    look(reading(uuid=LOST, index=3), cards=cards)  # type: ignore[arg-type]

    assert cards.nameless == ("GPU 3 does not tell its UUID (GPU_IS_LOST fell off the bus)",)


@pytest.mark.parametrize(
    ("event", "health"),
    [
        pytest.param(HealthEvent(uuid="GPU-a", xid=79, text=""), Health.UNHEALTHY, id="fell off the bus"),
        pytest.param(HealthEvent(uuid="GPU-a", xid=13, text=""), Health.HEALTHY, id="a program's own fault"),
        pytest.param(HealthEvent(uuid="GPU-a", xid=94, text=""), Health.SUSPECT, id="a contained error"),
        pytest.param(HealthEvent(uuid="GPU-a", xid=9999, text=""), Health.SUSPECT, id="not listed"),
        pytest.param(HealthEvent(uuid="GPU-b", xid=79, text=""), Health.HEALTHY, id="another card's"),
        pytest.param(HealthEvent(uuid=None, xid=79, text=""), Health.SUSPECT, id="nobody knows whose"),
    ],
)
def test_what_the_driver_reports_counts_for_the_card_it_names(event: HealthEvent, health: Health) -> None:
    (seen,) = Cards().look([reading("GPU-a")], [event], 0.0)

    assert seen.condition.health is health


@pytest.mark.parametrize(
    ("facts", "health"),
    [
        pytest.param([{"ecc_uncorrected": 5}, {"ecc_uncorrected": 5}], Health.HEALTHY, id="old errors"),
        pytest.param([{"ecc_uncorrected": 5}, {"ecc_uncorrected": 6}], Health.UNHEALTHY, id="a new error"),
        pytest.param([{"ecc_uncorrected": 5}, {"ecc_uncorrected": 0}], Health.HEALTHY, id="after a reset"),
        pytest.param([{"ecc_uncorrected": 5}], Health.HEALTHY, id="errors before the agent started"),
        pytest.param([{"rows_failed": True}], Health.UNHEALTHY, id="no spare row left"),
        pytest.param([{"rows_pending": True}], Health.SUSPECT, id="a reset is due"),
        pytest.param([{"rows_pending": False, "ecc_corrected": 900}], Health.HEALTHY, id="corrected errors"),
    ],
)
def test_what_a_card_says_of_itself(facts: list[dict[str, Any]], health: Health) -> None:
    cards = Cards()
    for second, fact in enumerate(facts):
        seen = look(reading(health=HealthFacts(**fact)), cards=cards, at=float(second))

    assert seen["GPU-a"].condition.health is health


def test_a_glance_does_not_change_health() -> None:
    cards = Cards()
    look(reading(), cards=cards)

    cards.glance([reading(used=TIMEOUT)])

    assert cards.health_of("GPU-a") is Health.HEALTHY


def test_cards_come_in_order_of_index() -> None:
    assert list(look(reading("GPU-z", index=0), reading("GPU-a", index=1))) == ["GPU-z", "GPU-a"]


def test_reserved_memory_stays_known() -> None:
    cards = Cards()
    look(reading(), cards=cards)

    assert look(reading(reserved=TIMEOUT), cards=cards)["GPU-a"].identity.reserved == Mib(550)


@pytest.mark.parametrize(
    ("reported", "health"),
    [
        (Health.UNHEALTHY, Health.PROBATION),
        (Health.PROBATION, Health.PROBATION),
        (Health.SUSPECT, Health.HEALTHY),
        (Health.HEALTHY, Health.HEALTHY),
    ],
)
def test_a_new_start_of_the_agent_is_no_cure(reported: Health, health: Health) -> None:
    cards = Cards()
    cards.recall({"GPU-a": reported})

    seen = look(reading("GPU-a"), reading("GPU-b", index=1), cards=cards)

    assert seen["GPU-a"].condition.health is health
    assert seen["GPU-b"].condition.health is Health.HEALTHY
