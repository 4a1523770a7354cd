from typing import Any

import pytest

import builders
from vramline.decide.preempt import Evictable, Plan, choose_plan, choose_victims
from vramline.model.claim import Claim, ClaimState
from vramline.model.pod import Pod
from vramline.model.rules import Rules

NOW = 100.0


def on(card: str, mib: int, pod: str, **fields: object) -> Claim:
    return builders.claim(mib, f"ns/{pod}", gpu=f"GPU-{card}", **fields)


def choose(
    mib: int, *claims: Claim, gpus: int = 1, preferred: str = "", slots: int | None = None, **priorities: int
) -> list[str] | None:
    """Choose on a node with cards a, b and c of 10,000 MiB each; pods have priority 0 unless told."""
    cards = [builders.gpu(f"GPU-{name}", 10_100, slots=slots) for name in "abc"]
    fleet = builders.fleet_of(builders.node("n", *cards), claims=claims)
    pods = [
        Evictable(builders.uid_of(f"ns/{name}"), priorities.get(name, 0), preferred=name in preferred)
        for name in dict.fromkeys(claim.pod.removeprefix("ns/") for claim in claims)
        if priorities.get(name, 0) < 10
    ]
    victims = choose_victims(fleet, "n", builders.ask(mib, gpus=gpus), Rules(), now=NOW, pods=pods)
    return None if victims is None else sorted(uid.removeprefix("uid-ns/") for uid in victims)


FULL_C = on("c", 9_000, "x")
FULL_B = on("b", 9_000, "y")


@pytest.mark.parametrize(
    ("claims", "priorities", "expected"),
    [
        pytest.param(
            (on("a", 1_000, "p"), FULL_B, FULL_C), {"x": 10, "y": 10}, [], id="room without anybody"
        ),
        pytest.param((on("a", 9_000, "p"), FULL_B, FULL_C), {"x": 10, "y": 10}, ["p"], id="the only one"),
        pytest.param((on("a", 9_000, "p"), FULL_B, FULL_C), {"p": 1, "x": 2}, ["y"], id="least important"),
        pytest.param(
            (on("a", 5_000, "p"), on("a", 4_000, "q"), FULL_B, FULL_C), {"x": 10}, ["y"], id="one, not two"
        ),
        pytest.param(
            (on("a", 5_000, "p"), on("a", 4_000, "q"), FULL_B, FULL_C),
            {"x": 1, "y": 1},
            ["p", "q"],
            id="two, if the one is more important",
        ),
        pytest.param(
            (on("a", 9_000, "p"), on("b", 8_500, "q"), FULL_C), {}, ["q"], id="the one that loses least"
        ),
        pytest.param((on("a", 9_000, "p"), FULL_B, FULL_C), {"p": 10, "x": 10, "y": 10}, None, id="nobody"),
        pytest.param(
            (on("a", 9_000, "p", state=ClaimState.RELEASING), FULL_B, FULL_C), {}, [], id="one leaves already"
        ),
    ],
)
def test_whose_memory_makes_room_for_8000(
    claims: tuple[Claim, ...], priorities: dict[str, Any], expected: list[str] | None
) -> None:
    assert choose(8_000, *claims, **priorities) == expected


def test_memory_that_is_being_released_counts_once() -> None:
    """Half is on its way: the other half has to go, and nobody on another card."""
    half, rest = on("a", 5_000, "p", state=ClaimState.RELEASING), on("a", 5_000, "q")

    assert choose(8_000, half, rest, FULL_B, FULL_C, x=1, y=1) == ["q"]


def test_among_equals_the_one_that_has_to_go_anyway_goes() -> None:
    claims = (on("a", 9_000, "p"), FULL_B, FULL_C)

    assert [choose(8_000, *claims, preferred=name) for name in "pxy"] == [["p"], ["x"], ["y"]]


def test_two_cards_need_room_on_two_cards() -> None:
    claims = (on("a", 9_000, "p"), FULL_B, FULL_C)

    assert choose(8_000, *claims, gpus=2, x=5) == ["p", "y"]


def test_a_pod_on_two_cards_frees_both() -> None:
    both = (on("a", 9_000, "p"), on("b", 9_000, "p"))

    assert choose(8_000, *both, FULL_C, gpus=2) == ["p"]


def test_a_slot_can_be_what_is_missing() -> None:
    claims = (on("a", 10, "p"), on("b", 10, "q"), on("c", 10, "r"))

    assert choose(8_000, *claims, slots=1, p=2, q=1, r=2) == ["q"]


# ── on which node ────────────────────────────────────────────────────────────────────────────────────


def plan(node: str, *priorities: int, started_at: float | None = 0.0) -> Plan:
    return Plan(
        node,
        tuple(
            Pod(namespace="ns", name=f"{node}-{number}", uid="", priority=priority, started_at=started_at)
            for number, priority in enumerate(priorities)
        ),
    )


@pytest.mark.parametrize(
    ("plans", "expected"),
    [
        pytest.param([plan("a", 3), plan("b", 2, 2, 2)], "b", id="lowest highest priority"),
        pytest.param([plan("a", 3, 2), plan("b", 3, 1)], "b", id="then lowest sum"),
        pytest.param([plan("a", 3, -5, -5), plan("b", 3, 2)], "b", id="two never harm less than one"),
        pytest.param([plan("a", 3, 0), plan("b", 3)], "b", id="then fewest"),
        pytest.param(
            [plan("a", 3, started_at=10.0), plan("b", 3, started_at=20.0)], "b", id="then started last"
        ),
        pytest.param(
            [plan("a", 3, started_at=10.0), plan("b", 3, started_at=None)], "b", id="not started at all"
        ),
        pytest.param([plan("b", 3), plan("a", 3)], "a", id="then by name"),
    ],
)
def test_the_node_is_chosen_as_kube_scheduler_does(plans: list[Plan], expected: str) -> None:
    chosen = choose_plan(plans)

    assert chosen is not None
    assert chosen.node == expected


def test_without_a_plan_nothing_is_chosen() -> None:
    assert choose_plan([]) is None
