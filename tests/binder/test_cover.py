"""Which cards are held, and what is to be made or ended: a function of what the API server shows."""

from vramline.binder.cover import (
    Claimed,
    Situation,
    held_cards,
    next_ordinal,
    plan_upkeep,
    under_way,
    uuids_of,
)
from vramline.model.gpu import PhysicalGpu
from vramline.model.node import Node
from vramline.units import Mib
from vramline.wire.reservation_pod import Reservation, name_reservation
from vramline.wire.uuids import name_card


def node_of(*cards: str, slots: int | None = None) -> Node:
    gpus = tuple(
        PhysicalGpu(uuid=card, node="n1", index=index, total=Mib(24_000), slots=slots)
        for index, card in enumerate(cards)
    )
    return Node(name="n1", gpus=gpus, advertised=len(cards) * (slots or 1))


def made_for(planned: str, card: str = "", *, ordinal: int = 1, failure: str = "") -> Reservation:
    return Reservation(
        name=name_reservation("n1", planned, ordinal),
        uid=f"uid-{planned}-{ordinal}",
        version="1",
        node="n1",
        planned=planned,
        card=card,
        failure=failure,
        created_at=float(ordinal),
    )


def used(*cards: str) -> Claimed:
    return Claimed(any=frozenset(cards), used=frozenset(cards))


def test_what_a_reservation_tells_counts_and_not_what_it_was_made_for() -> None:
    held = held_cards(Situation(node=node_of("A", "B"), reservations=(made_for("A", "B"),)))

    assert uuids_of(held) == {"B": "B"}


def test_a_rejected_reservation_holds_nothing() -> None:
    situation = Situation(node=node_of("A"), reservations=(made_for("A", failure="no device"),))

    assert held_cards(situation) == {}
    assert under_way(situation) == []


def test_one_sliced_card_leaves_no_choice() -> None:
    situation = Situation(node=node_of("A", slots=10), reservations=(made_for("A"),))

    assert list(held_cards(situation)) == ["A"]
    assert under_way(situation) == []


def test_one_plain_card_is_waited_for_because_a_stranger_may_have_it() -> None:
    situation = Situation(node=node_of("A"), reservations=(made_for("A"),))

    assert held_cards(situation) == {}
    assert len(under_way(situation)) == 1


def test_a_card_that_nobody_named_gets_its_uuid_from_its_reservation() -> None:
    first, second = name_card("n1", 0), name_card("n1", 1)
    situation = Situation(
        node=node_of(first, second), reservations=(made_for(first, "GPU-x"), made_for(second, "GPU-y"))
    )

    assert uuids_of(held_cards(situation)) == {first: "GPU-x", second: "GPU-y"}


def test_two_reservations_of_one_nameless_card_are_one_card() -> None:
    first, second = name_card("n1", 0), name_card("n1", 1)
    again = made_for(second, "GPU-x", ordinal=2)
    situation = Situation(
        node=node_of(first, second, slots=4), reservations=(again, made_for(first, "GPU-x"))
    )

    assert uuids_of(held_cards(situation)) == {first: "GPU-x"}


def test_the_next_try_has_a_name_of_its_own() -> None:
    situation = Situation(node=node_of("A", "B"), reservations=(made_for("A", "B"),))

    assert (next_ordinal(situation, "A"), next_ordinal(situation, "B")) == (2, 1)


def test_what_nobody_uses_is_ended() -> None:
    idle = made_for("A", "A")

    upkeep = plan_upkeep(Situation(node=node_of("A", "B"), reservations=(idle,)), Claimed())

    assert upkeep.end == (idle,)


def test_what_holds_another_card_stays_until_the_right_one_has_come() -> None:
    other = made_for("A", "B")

    upkeep = plan_upkeep(Situation(node=node_of("A", "B"), reservations=(other,)), used("A"))

    assert (upkeep.end, upkeep.make) == ((), ("A",))


def test_once_the_right_card_has_come_the_other_goes() -> None:
    other, right = made_for("A", "B"), made_for("A", "A", ordinal=2)

    upkeep = plan_upkeep(Situation(node=node_of("A", "B"), reservations=(other, right)), used("A"))

    assert (upkeep.end, upkeep.make) == ((other,), ())


def test_a_reservation_for_a_bind_under_way_stays_whatever_it_holds() -> None:
    other = made_for("A", "B")
    claimed = Claimed(any=frozenset({"A"}), awaited=frozenset({"A"}))

    assert plan_upkeep(Situation(node=node_of("A", "B"), reservations=(other,)), claimed).end == ()


def test_a_card_that_kubelet_cannot_give_is_called_lost() -> None:
    rejected = made_for("A", failure="UnexpectedAdmissionError")

    upkeep = plan_upkeep(Situation(node=node_of("A"), reservations=(rejected,)), used("A"))

    assert (upkeep.lost, upkeep.end, upkeep.make) == (("A",), (rejected,), ())
