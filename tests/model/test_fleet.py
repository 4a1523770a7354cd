"""The fleet keeps columns, ledger and observations in step."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import claim, fleet_of, gpu, node, observation, process
from vramline.errors import InvariantError
from vramline.model.fleet import NOT_HERE, Fleet
from vramline.model.gpu import Health, PhysicalGpu
from vramline.model.ledger import Reservation
from vramline.model.node import Node, NodeProblem, ProblemKind
from vramline.model.observation import NOT_REPORTED
from vramline.model.reason import CODE_OF, FITS, Reason
from vramline.units import Mib


def test_rows_of_a_node_that_left_are_used_again() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a"), gpu("GPU-b")), node("n2", gpu("GPU-c")))
    size = len(fleet.columns)
    fleet.remove_node("n1")
    fleet.set_node(node("n3", gpu("GPU-d"), gpu("GPU-e")))

    assert len(fleet.columns) == size
    assert fleet.columns.card(fleet.columns.row_of["GPU-d"]).node == "n3"
    assert fleet.gpu("GPU-a") is None


def test_rows_without_a_node_fit_nothing() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a"), gpu("GPU-b")))
    fleet.remove_node("n1")

    assert fleet.columns.static_code.tolist() == [CODE_OF[Reason.NO_SUCH_GPU]] * 2


def test_a_row_used_again_keeps_nothing_of_the_card_before() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a", 80_000)))
    fleet.adopt([claim(8_000)])
    fleet.observe("GPU-a", observation(9_000, process(9_000)))
    fleet.remove_node("n1")
    fleet.set_node(node("n2", gpu("GPU-z", 16_000)))
    row = fleet.columns.row_of["GPU-z"]

    assert (fleet.columns.free_books[row], fleet.columns.free_observed[row]) == (15_900, 15_900)
    assert fleet.columns.sharers[row] == 0


def test_claims_survive_a_change_of_their_node() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a")))
    fleet.adopt([claim(8_000)])
    fleet.set_node(node("n1", gpu("GPU-a"), gpu("GPU-b")))

    assert fleet.account("GPU-a").free == 24_500


def test_an_older_observation_changes_nothing() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a")))
    fleet.observe("GPU-a", observation(9_000, process(9_000), at=10.0))
    generation = fleet.generation
    fleet.observe("GPU-a", observation(0, at=9.0))

    assert (fleet.generation, fleet.account("GPU-a").unmanaged) == (generation, 9_000)


def test_the_same_card_on_two_nodes_is_refused() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a")))

    with pytest.raises(InvariantError, match="GPU-a is on n1 and on n2"):
        fleet.set_node(node("n2", gpu("GPU-a")))


def test_a_frozen_node_refuses_every_card_and_keeps_its_first_problem() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a")), node("n2", gpu("GPU-b")))
    fleet.freeze("n1", NodeProblem(ProblemKind.FROZEN, "first"))
    fleet.freeze("n1", NodeProblem(ProblemKind.FROZEN, "second"))
    problem = fleet.node("n1")

    assert problem is not None
    assert problem.problem == NodeProblem(ProblemKind.FROZEN, "first")
    assert fleet.columns.static_code[fleet.columns.row_of["GPU-a"]] == CODE_OF[Reason.FROZEN_NODE]
    assert fleet.columns.static_code[fleet.columns.row_of["GPU-b"]] == FITS


def test_a_reservation_for_a_card_of_another_node_is_refused() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a")), node("n2", gpu("GPU-b")))

    with pytest.raises(InvariantError, match="no GPU GPU-b on n1"):
        fleet.reserve(Reservation(node="n1", claims=(claim(10, gpu="GPU-b"),)))


def test_memory_of_a_deleted_pod_is_held_until_the_card_shows_it_free() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a")))
    fleet.reserve(Reservation(node="n1", claims=(claim(24_000, "ns/p"),)))
    fleet.pod_bound("uid-ns/p")
    fleet.pod_started("uid-ns/p", at=1.0)
    fleet.observe("GPU-a", observation(24_000, process(24_000, "ns/p"), at=2.0))
    fleet.pod_deleted("uid-ns/p")
    held = [fleet.account("GPU-a").held_releasing]
    fleet.pod_ended("uid-ns/p", at=3.0)
    fleet.settle(now=4.0, grace_s=60.0, max_age_s=90.0)
    held.append(fleet.account("GPU-a").held_releasing)
    fleet.observe("GPU-a", observation(0, at=5.0))
    released = fleet.settle(now=6.0, grace_s=60.0, max_age_s=90.0)

    assert held == [24_000, 24_000]
    assert [each.claim.pod for each in released] == ["ns/p"]
    assert fleet.account("GPU-a").free == 32_500


def test_a_pod_on_two_cards_goes_when_both_are_free() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a"), gpu("GPU-b")))
    fleet.reserve(
        Reservation(node="n1", claims=tuple(claim(10, "ns/p", gpu=uuid) for uuid in ("GPU-a", "GPU-b")))
    )
    fleet.pod_bound("uid-ns/p")
    fleet.pod_ended("uid-ns/p", at=1.0)
    fleet.observe("GPU-a", observation(0, at=2.0))
    fleet.observe("GPU-b", observation(10, process(10, "ns/p"), at=2.0))

    assert fleet.settle(now=3.0, grace_s=60.0, max_age_s=90.0) == []
    assert fleet.account("GPU-a").held == 10


def test_one_node_alone_shows_what_the_fleet_shows_of_it() -> None:
    fleet = Fleet()
    fleet.set_node(node("n1", gpu("GPU-a", 40_000)))
    fleet.set_node(node("n2", gpu("GPU-c"), gpu("GPU-b")))
    fleet.adopt([claim(8_000, gpu="GPU-c")])

    alone = fleet.only("n2")

    assert [node.name for node in alone.nodes] == ["n2"]
    assert sorted(alone.columns.row_of) == ["GPU-b", "GPU-c"]
    assert alone.account("GPU-c") == fleet.account("GPU-c")
    assert alone.columns.claimed.tolist() == [0, 8_000]
    assert alone.generation == fleet.generation


def test_names_of_no_node_have_no_number() -> None:
    fleet = Fleet()
    for name in ("n1", "n2", "n3"):
        fleet.set_node(node(name, gpu(f"GPU-{name}")))
    fleet.remove_node("n2")
    fleet.set_node(node("n4", gpu("GPU-n4")))

    numbers = fleet.node_numbers(["n4", "n2", "n3", "n1"]).tolist()

    assert numbers == [fleet.node_number("n4"), NOT_HERE, fleet.node_number("n3"), fleet.node_number("n1")]


_CARDS = st.lists(
    st.builds(
        gpu,
        st.just(""),
        st.sampled_from([8_000, 16_000]),
        reserved=st.sampled_from([Mib(0), NOT_REPORTED]),
        slots=st.none() | st.integers(1, 2),
        model=st.sampled_from(["", "T4"]),
        numa=st.none() | st.just(1),
        unified=st.booleans(),
        health=st.sampled_from(Health),
        cordoned=st.booleans(),
    ),
    max_size=3,
)


@given(st.lists(_CARDS, max_size=6), st.sets(st.integers(0, 5)), st.lists(_CARDS, max_size=6))
@settings(deadline=None)
def test_nodes_added_together_lie_in_the_rows_as_if_one_by_one(
    before: list[list[PhysicalGpu]], left: set[int], added: list[list[PhysicalGpu]]
) -> None:
    one_by_one, together = Fleet(), Fleet()
    first, then = (_nodes_with(cards, prefix) for cards, prefix in ((before, "a"), (added, "b")))
    for each in first:
        one_by_one.set_node(each)
    together.add_nodes(first)
    for fleet in (one_by_one, together):
        for number in sorted(left & set(range(len(first)))):
            fleet.remove_node(f"a{number}")
    for each in then:
        one_by_one.set_node(each)
    with together.gathering():
        together.add_nodes(then)

    assert list(together.nodes) == list(one_by_one.nodes)
    assert together.columns.row_of == one_by_one.columns.row_of
    assert (together.columns.kinds, together.columns.models) == (
        one_by_one.columns.kinds,
        one_by_one.columns.models,
    )
    for name in ("starts", "widths", "node_of_block", "block", "promise", "kind", "model", "slots", "numa"):
        assert getattr(together.columns, name).tolist() == getattr(one_by_one.columns, name).tolist(), name
    for name in ("unified", "static_code", "node_mode", "free_books", "slots_left", "cores_left"):
        rows = sorted(together.columns.row_of.values())
        assert (
            getattr(together.columns, name)[rows].tolist() == getattr(one_by_one.columns, name)[rows].tolist()
        )
    assert (
        together.node_numbers([n.name for n in then]).tolist()
        == one_by_one.node_numbers([n.name for n in then]).tolist()
    )


def test_nodes_that_share_a_card_are_not_added_together() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a")))

    for cards in (("GPU-b", "GPU-b"), ("GPU-a", "GPU-c")):
        with pytest.raises(InvariantError, match="on two nodes"):
            fleet.add_nodes([node(f"new-{uuid}-{n}", gpu(uuid)) for n, uuid in enumerate(cards)])


def _nodes_with(cards: list[list[PhysicalGpu]], prefix: str) -> list[Node]:
    return [
        node(
            f"{prefix}{number}",
            *(msgspec.structs.replace(card, uuid=f"{prefix}{number}-{n}") for n, card in enumerate(some)),
        )
        for number, some in enumerate(cards)
    ]
