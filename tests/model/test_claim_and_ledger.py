"""The ledger never over-promises and forgets exactly what it is told to forget."""

import itertools

import pytest

from builders import claim
from vramline.errors import InvariantError
from vramline.model.claim import ClaimEvent, ClaimState, next_state
from vramline.model.ledger import CardLimits, Ledger, Reservation
from vramline.units import Mib

LIMITS = {"GPU-a": CardLimits(Mib(32_500), 3, 100), "GPU-b": CardLimits(Mib(32_500), None, 100)}


def one(mib: int, pod: str, *, gpu: str = "GPU-a", cores: int = 0) -> Reservation:
    return Reservation(node="n1", claims=(claim(mib, pod, gpu=gpu, cores=cores),))


def test_a_claim_lives_through_its_states() -> None:
    state = ClaimState.RESERVED
    for event in (ClaimEvent.BIND, ClaimEvent.START, ClaimEvent.DELETE, ClaimEvent.PROOF):
        state = next_state(state, event)

    assert state is ClaimState.GONE


@pytest.mark.parametrize("state", [ClaimState.GONE, ClaimState.ABANDONED])
def test_a_claim_that_is_over_cannot_move(state: ClaimState) -> None:
    for event in ClaimEvent:
        with pytest.raises(InvariantError):
            next_state(state, event)


def test_a_reserved_claim_becomes_free_only_by_being_abandoned() -> None:
    free = {ClaimState.GONE, ClaimState.ABANDONED}
    moves: set[ClaimEvent] = set()
    for event in ClaimEvent:
        try:
            if next_state(ClaimState.RESERVED, event) in free:
                moves.add(event)
        except InvariantError:
            continue

    assert moves == {ClaimEvent.ABANDON}


@pytest.mark.parametrize(
    ("reservation", "message"),
    [
        pytest.param(one(32_501, "ns/big"), "promises 32500", id="more than the card promises"),
        pytest.param(one(0, "ns/none"), "promises 32500", id="nothing at all"),
        pytest.param(one(100, "ns/hungry", cores=101), "101 %", id="more cores than there are"),
    ],
)
def test_apply_refuses_to_over_promise_and_changes_nothing(reservation: Reservation, message: str) -> None:
    ledger = Ledger()

    with pytest.raises(InvariantError, match=message):
        ledger.apply(reservation, LIMITS)

    assert (len(ledger), ledger.version) == (0, 0)


def test_apply_refuses_a_fourth_pod_on_three_slots() -> None:
    ledger = Ledger()
    for number in range(3):
        ledger.apply(one(10, f"ns/{number}"), LIMITS)

    with pytest.raises(InvariantError, match="all 3 slots"):
        ledger.apply(one(10, "ns/3"), LIMITS)


def test_apply_takes_all_cards_of_a_pod_or_none() -> None:
    ledger = Ledger()
    both = Reservation(node="n1", claims=(claim(10, "ns/p", gpu="GPU-b"), claim(99_999, "ns/p", gpu="GPU-a")))

    with pytest.raises(InvariantError):
        ledger.apply(both, LIMITS)

    assert ledger.of_card("GPU-b") == ()


def test_a_pod_cannot_claim_twice() -> None:
    ledger = Ledger()
    ledger.apply(one(10, "ns/p"), LIMITS)

    with pytest.raises(InvariantError, match="holds a claim already"):
        ledger.apply(one(10, "ns/p", gpu="GPU-b"), LIMITS)


@pytest.mark.parametrize("order", list(itertools.permutations(["ns/0", "ns/1", "ns/2"])))
def test_removal_restores_what_was_there(order: tuple[str, ...]) -> None:
    ledger = Ledger()
    for pod in order:
        ledger.apply(one(10, pod), LIMITS)
    before = ledger.of_card("GPU-a")
    ledger.apply(one(10, "ns/x", gpu="GPU-b"), LIMITS)
    ledger.remove("uid-ns/x")

    assert (ledger.of_card("GPU-a"), ledger.of_card("GPU-b")) == (before, ())


def test_adopt_records_reality_even_where_it_is_over_committed() -> None:
    ledger = Ledger()
    ledger.adopt([claim(99_999)])

    assert ledger.of_card("GPU-a")[0].mib == 99_999


def test_clearing_a_card_leaves_what_its_pods_hold_elsewhere() -> None:
    ledger = Ledger()
    ledger.adopt(
        [claim(10, "ns/p", gpu="GPU-a"), claim(20, "ns/p", gpu="GPU-b"), claim(30, "ns/q", gpu="GPU-a")]
    )

    assert {each.pod for each in ledger.clear_card("GPU-a")} == {"ns/p", "ns/q"}
    assert [each.mib for each in ledger] == [20]
