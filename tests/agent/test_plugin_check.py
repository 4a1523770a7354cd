"""The last look, from a slot to an answer."""

import asyncio

import pytest
from structlog.testing import capture_logs

from agent.plugin_world import NodeWorld, card, claim, used_by
from vramline.agent.plugin_check import CheckOptions, StartCheck
from vramline.model.ask import RealtimeMode
from vramline.units import Mib

SLOT = "slot-00000"
FULL = (card("GPU-a", used_by(None, 20_000)),)


def ask(world: NodeWorld, *, refuses_unseen: bool = False) -> tuple[str, list[str]]:
    """Return the refusal, and the events in the log."""
    options = CheckOptions(margin=Mib(100), max_age_s=5.0, refuses_unseen=refuses_unseen)
    check = StartCheck(world.sources(), options)
    with capture_logs() as logs:
        refusal = asyncio.run(check.refusal([SLOT], has_run=False))
    return refusal, [str(each["event"]) for each in logs]


def world_of(**given: object) -> NodeWorld:
    world = NodeWorld(claims=(claim("ml/a", 16_000),), slots={SLOT: "ml/a", "slot-00001": "ml/b"})
    for name, value in given.items():
        setattr(world, name, value)
    return world


def test_a_card_with_room_lets_the_container_start() -> None:
    world = world_of()

    assert ask(world) == ("", [])
    assert world.looks == [{"GPU-a"}]
    assert world.starts == {"agreed": 1}


def test_strict_refuses_what_the_card_cannot_hold() -> None:
    world = world_of(cards=FULL)

    refusal, events = ask(world)

    assert refusal.startswith("GPU-a lacks 12,000 MiB of the 16,000 promised to ml/a: usable 24,000 − held")
    assert events == ["start.refused"]
    assert world.starts == {"refused": 1}


def test_warning_says_so_and_agrees() -> None:
    lax = (claim("ml/a", 16_000, mode=RealtimeMode.WARNING),)

    world = world_of(cards=FULL, claims=lax)

    assert ask(world) == ("", ["start.short"])
    assert world.starts == {"short": 1}


def test_disabled_does_not_look() -> None:
    world = world_of(cards=FULL, claims=(claim("ml/a", 16_000, mode=RealtimeMode.DISABLED),))

    assert ask(world) == ("", [])
    assert world.looks == []


def test_only_the_cards_of_the_pod_count() -> None:
    world = world_of(
        cards=(card("GPU-a"), card("GPU-b", used_by(None, 24_000))),
        claims=(claim("ml/a", 16_000), claim("ml/b", 16_000, "GPU-b")),
    )

    assert ask(world) == ("", [])


def test_every_short_card_of_a_pod_is_named() -> None:
    world = world_of(
        cards=(card("GPU-a", used_by(None, 20_000)), card("GPU-b", used_by(None, 24_000))),
        claims=(claim("ml/a", 16_000), claim("ml/a", 16_000, "GPU-b")),
    )

    refusal, _ = ask(world)

    assert [part.partition(" lacks")[0] for part in refusal.split("; ")] == ["GPU-a", "GPU-b"]


@pytest.mark.parametrize(
    "claims", [pytest.param((), id="an empty ledger"), pytest.param((claim("ml/b", 1),), id="others' claims")]
)
def test_a_pod_that_nobody_promised_anything_does_not_start(claims: object) -> None:
    refusal, events = ask(world_of(claims=claims))

    assert refusal.startswith("the ledger of n1 promises no memory to ml/a: it was not placed by Vramline")
    assert events == ["start.refused"]


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        pytest.param({"slots": None}, "kubelet does not answer", id="pod resources"),
        pytest.param({"slots": {}}, "whose slot-00000 is: kubelet does not list it", id="an unlisted slot"),
        pytest.param({"claims": None}, "the API server does not answer", id="the ledger"),
        pytest.param({"look_answers": False}, "the driver does not answer", id="the card"),
        pytest.param({"now": 105.1}, "GPU-a did not tell how much is in use", id="an old look"),
        pytest.param({"cards": ()}, "GPU-a did not tell how much is in use", id="a lost card"),
    ],
)
def test_what_cannot_be_looked_at_is_said_and_refused_where_the_setting_says_so(
    missing: dict[str, object], words: str
) -> None:
    assert ask(world_of(**missing)) == ("", ["start.unseen"])

    refusal, events = ask(world_of(**missing), refuses_unseen=True)
    assert refusal.startswith("not looked at: ")
    assert words in refusal
    assert events == ["start.unseen"]
