"""Where the memory of a card or node is, and what a reader should know about it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import claim, fleet_of, gpu, node, observation, process
from strategies import NOW, fleets
from vramline.errors import InvariantError
from vramline.explain.cards import CardClaim, CardState, NodeState, card_state, node_state
from vramline.model.claim import ClaimState
from vramline.model.fleet import Fleet
from vramline.model.gpu import Health
from vramline.model.node import InventorySource, NodeProblem, ProblemKind


def state_of(fleet: Fleet, uuid: str = "GPU-a", **options: Any) -> CardState:
    return card_state(fleet, uuid, now=100.0, max_age_s=90.0, **options)


def test_a_card_nobody_saw_is_counted_by_the_books() -> None:
    state = state_of(fleet_of(node("n1", gpu(slots=4, model="T4")), claims=[claim(8_000)]))

    assert state == CardState(
        node="n1",
        uuid="GPU-a",
        index=0,
        model="T4",
        total_mib=32_600,
        usable_mib=32_600,
        held_mib=8_000,
        releasing_mib=0,
        reserved_mib=0,
        unmanaged_mib=None,
        margin_mib=100,
        free_mib=24_500,
        slots=4,
        basis="books",
        health=Health.HEALTHY,
        cordoned=False,
        used_mib=None,
        utilization_percent=None,
        observed_age_s=None,
        source=None,
        unmanaged_is_lower_bound=False,
        claims=[CardClaim("ns/other", 8_000, ClaimState.RESERVED)],
        notes=[],
    )


def test_a_card_that_was_seen_lately_shows_unmanaged_memory() -> None:
    fleet = fleet_of(node("n1", gpu(total=8_192)))
    fleet.observe("GPU-a", observation(6_144, process(6_144), at=90.0, utilization_percent=45))
    state = state_of(fleet)

    assert (state.basis, state.unmanaged_mib, state.free_mib) == ("observed", 6_144, 1_948)
    assert (state.used_mib, state.utilization_percent, state.observed_age_s) == (6_144, 45, 10.0)


def test_a_look_that_is_too_old_is_shown_with_its_age_and_does_not_count() -> None:
    fleet = fleet_of(node("n1", gpu(total=8_192)))
    fleet.observe("GPU-a", observation(6_144, process(6_144), at=9.0))
    state = state_of(fleet)

    assert (state.basis, state.unmanaged_mib, state.free_mib) == ("books", None, 8_092)
    assert (state.used_mib, state.observed_age_s) == (6_144, 91.0)
    assert state.notes == ["counted by the books: the last observation is 91 s old"]


def test_a_card_without_a_process_list_shows_a_lower_bound() -> None:
    fleet = fleet_of(node("n1", gpu()), observations={"GPU-a": observation(6_144, listed=False)})

    assert state_of(fleet).unmanaged_is_lower_bound


def test_releasing_memory_is_part_of_what_is_held() -> None:
    leaving = claim(24_000, "ns/old", state=ClaimState.RELEASING)
    state = state_of(fleet_of(node("n1", gpu()), claims=[leaving, claim(1_000)]))

    assert (state.held_mib, state.releasing_mib) == (25_000, 24_000)


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        pytest.param({"cordoned": True}, "no new pods: cordoned by an operator", id="cordoned"),
        pytest.param({"health": Health.SUSPECT}, "no new pods: health is Suspect", id="sick"),
        pytest.param(
            {"mig": True},
            "no new pods: partitioned by MIG, its memory belongs to its instances",
            id="partitioned",
        ),
    ],
)
def test_a_card_says_why_it_gets_no_new_pods(fields: dict[str, Any], note: str) -> None:
    assert state_of(fleet_of(node("n1", gpu(**fields)))).notes == [note]


def test_a_card_repeats_the_problem_of_its_node() -> None:
    problem = NodeProblem(ProblemKind.INVENTORY_CONFLICT, "report says 2 cards,\nlabels say 1")
    fleet = fleet_of(node("n1", gpu(), problem=problem))

    assert state_of(fleet).notes == ["no new pods: InventoryConflict, report says 2 cards, labels say 1"]


def test_a_pod_that_uses_more_than_it_claimed_is_named() -> None:
    fleet = fleet_of(node("n1", gpu()), claims=[claim(8_000, "ns/greedy"), claim(8_000, "ns/modest")])
    seen = (process(5_000, "ns/greedy"), process(4_000, "ns/greedy"), process(9, "ns/modest"))
    fleet.observe("GPU-a", observation(9_009, *seen))

    assert state_of(fleet).notes == ["ns/greedy uses 9,000 MiB, 1,000 MiB more than it claimed"]


def test_a_card_that_holds_more_than_it_can_promise_says_so() -> None:
    fleet = fleet_of(node("n1", gpu()), claims=[claim(40_000)])

    assert state_of(fleet).notes == ["over-committed by 7,500 MiB"]


@pytest.mark.parametrize(
    ("ended_at", "notes"),
    [
        pytest.param(None, [], id="a pod that still ends is no ghost"),
        pytest.param(60.0, [], id="nor is one within its grace"),
        pytest.param(
            30.0, ["ns/other ended 70 s ago and nothing shows that its 24,000 MiB are free"], id="a ghost"
        ),
    ],
)
def test_a_pod_that_should_be_gone_by_now_is_named(ended_at: float | None, notes: list[str]) -> None:
    fleet = fleet_of(node("n1", gpu()), claims=[claim(24_000, state=ClaimState.RELEASING, ended_at=ended_at)])

    assert state_of(fleet, grace_s=60.0).notes == notes


def test_a_card_that_is_not_in_the_fleet_is_a_bug_of_the_caller() -> None:
    with pytest.raises(InvariantError, match="no GPU GPU-x in the fleet"):
        state_of(fleet_of(), "GPU-x")


def adds_up(state: CardState | NodeState) -> bool:
    left = state.usable_mib - state.margin_mib - state.held_mib - (state.unmanaged_mib or 0)
    return left == state.free_mib and state.releasing_mib <= state.held_mib


@given(fleets(), st.sampled_from([NOW - 100, NOW, NOW + 1_000]))
def test_the_figures_of_every_card_and_node_add_up(fleet: Fleet, now: float) -> None:
    for each in fleet.nodes:
        states = [card_state(fleet, card.uuid, now=now, max_age_s=90.0) for card in each.gpus]
        assert adds_up(node_state(fleet, each.name, now=now, max_age_s=90.0))
        assert all(adds_up(state) for state in states)
        assert all((state.unmanaged_mib is None) == (state.basis == "books") for state in states)


def test_a_node_sums_up_its_cards() -> None:
    fleet = fleet_of(
        node(
            "n1",
            gpu("GPU-a", slots=10),
            gpu("GPU-b", 16_000, slots=10),
            advertised=20,
            source=InventorySource.GFD,
        ),
        claims=[claim(8_000, gpu="GPU-a"), claim(8_000, gpu="GPU-b"), claim(1_000, "ns/two", gpu="GPU-b")],
        observations={"GPU-a": observation(8_500, process(8_000, "ns/other"), process(500))},
    )
    state = node_state(fleet, "n1", now=100.0, max_age_s=90.0)

    assert (state.physical, state.advertised, state.slots, state.source) == (2, 20, 20, InventorySource.GFD)
    assert (state.total_mib, state.held_mib, state.unmanaged_mib) == (48_600, 17_000, 500)
    assert (state.free_mib, state.largest_free_mib, state.by_books, state.pods) == (30_900, 24_000, 1, 2)


def test_a_node_without_cards_has_no_largest_free_card() -> None:
    state = node_state(fleet_of(node("n1")), "n1", now=100.0, max_age_s=90.0)

    assert (state.physical, state.free_mib, state.largest_free_mib, state.slots) == (0, 0, None, None)
    assert state.unmanaged_mib is None


def test_a_node_with_one_card_without_a_limit_has_no_limit() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a", slots=10), gpu("GPU-b")))

    assert node_state(fleet, "n1", now=100.0, max_age_s=90.0).slots is None


def test_a_node_that_is_not_in_the_fleet_is_a_bug_of_the_caller() -> None:
    with pytest.raises(InvariantError, match="no node nx in the fleet"):
        node_state(fleet_of(), "nx", now=0.0, max_age_s=1.0)


def test_a_used_figure_the_card_did_not_tell_stays_unknown() -> None:
    fleet = fleet_of(node("n1", gpu()), observations={"GPU-a": observation(None, listed=False)})
    state = state_of(fleet)

    assert (state.used_mib, state.unmanaged_mib, state.basis, state.observed_age_s) == (
        None,
        None,
        "books",
        None,
    )
