"""Who may open a stream."""

import asyncio
import base64
import json

import pytest

from vramline.errors import TransientError
from vramline.scheduler.doorkeeper import AGENT_ACCOUNT, Admitted, Doorkeeper, TurnedAway
from vramline.wire.token_review_v1 import TokenHolder

AGENT = TokenHolder(AGENT_ACCOUNT, "n1")


class Reviews:
    """What an API server would say, and how often it was asked."""

    def __init__(self, **holders: TokenHolder | None) -> None:
        self.holders = holders
        self.asked = 0
        self.is_up = True

    async def review(self, token: str) -> TokenHolder | None:
        self.asked += 1
        await asyncio.sleep(0)
        if not self.is_up:
            raise TransientError("no answer")
        return self.holders.get(token.split(".", maxsplit=1)[0])


class World:
    def __init__(self, **holders: TokenHolder | None) -> None:
        self.now = 1_000.0
        self.reviews = Reviews(**holders)
        self.door = Doorkeeper(self.reviews, lambda: self.now, most_tokens=2)

    def admit(self, header: str) -> Admitted | TurnedAway:
        return asyncio.run(self.door.admit(header))


def token(name: str, expires_at: float) -> str:
    payload = base64.urlsafe_b64encode(json.dumps({"exp": expires_at}).encode()).decode().rstrip("=")
    return f"{name}.{payload}.sig"


@pytest.mark.parametrize(
    ("header", "status"),
    [
        pytest.param("", 401, id="no header"),
        pytest.param("Basic YTpi", 401, id="another scheme"),
        pytest.param("Bearer ", 401, id="no token"),
        pytest.param("Bearer " + "x" * 20_000, 401, id="a token that is too long"),
        pytest.param("Bearer nobody", 401, id="a token nobody knows"),
        pytest.param("Bearer other", 403, id="another account"),
        pytest.param("Bearer unbound", 403, id="the agent's account, bound to no node"),
        pytest.param(f"Bearer {token('agent', 999.0)}", 401, id="an expired token"),
    ],
)
def test_is_turned_away(header: str, status: int) -> None:
    world = World(
        agent=AGENT,
        other=TokenHolder("system:serviceaccount:team:default", "n1"),
        unbound=TokenHolder(AGENT_ACCOUNT, ""),
    )

    verdict = world.admit(header)

    assert isinstance(verdict, TurnedAway)
    assert verdict.status == status
    assert "xxxx" not in verdict.why


def test_the_agent_speaks_for_the_node_of_its_token_until_that_expires() -> None:
    world = World(agent=AGENT)

    assert world.admit(f"Bearer {token('agent', 1_600.0)}") == Admitted("n1", 1_600.0)


def test_no_stream_lasts_longer_than_an_hour_whatever_its_token_says() -> None:
    world = World(agent=AGENT)

    assert world.admit(f"bearer {token('agent', 99_999.0)}") == Admitted("n1", 4_600.0)
    assert world.admit("Bearer agent") == Admitted("n1", 4_600.0)


def test_a_token_is_reviewed_once_a_minute() -> None:
    world = World(agent=AGENT)
    for _ in range(3):
        world.admit("Bearer agent")
    assert world.reviews.asked == 1

    world.now += 61.0
    world.reviews.holders.clear()
    assert isinstance(world.admit("Bearer agent"), TurnedAway)
    assert world.reviews.asked == 2


def test_a_refused_token_is_not_reviewed_again_and_again_but_soon() -> None:
    world = World()
    for _ in range(3):
        world.admit("Bearer agent")
    assert world.reviews.asked == 1

    world.now += 11.0
    world.reviews.holders["agent"] = AGENT
    assert isinstance(world.admit("Bearer agent"), Admitted)


def test_while_nobody_can_be_asked_an_agent_is_told_to_try_again() -> None:
    world = World(agent=AGENT)
    world.reviews.is_up = False
    verdict = world.admit("Bearer agent")
    assert isinstance(verdict, TurnedAway)
    assert verdict.status == 503

    world.reviews.is_up = True
    assert isinstance(world.admit("Bearer agent"), Admitted)


def test_only_so_many_tokens_are_remembered() -> None:
    world = World(agent=AGENT)
    for name in ("a", "b", "c", "a"):
        world.admit(f"Bearer {name}")

    assert world.reviews.asked == 4
