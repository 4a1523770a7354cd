"""Copies of a node: the same figures, and exactly the change that was asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import claim, fleet_of, gpu, node, observation, process
from strategies import fleets
from vramline.decide.whatif import copy_node, copy_with_card_uncordoned, copy_without_pods
from vramline.errors import InvariantError
from vramline.model.fleet import Fleet
from vramline.model.observation import NOT_REPORTED, Observation


@given(fleets())
def test_a_copy_of_a_node_has_the_same_figures_and_nothing_else(fleet: Fleet) -> None:
    for each in fleet.nodes:
        copy = copy_node(fleet, each.name)

        assert list(copy.nodes) == [each]
        assert all(copy.account(card.uuid) == fleet.account(card.uuid) for card in each.gpus)


@given(fleets(), st.data())
def test_a_pod_that_leaves_takes_with_it_at_least_what_it_claimed(fleet: Fleet, data: st.DataObject) -> None:
    claims = tuple(fleet.ledger)
    if not claims:
        return
    leaving = data.draw(st.sampled_from(claims))
    card = fleet.gpu(leaving.gpu)
    assert card is not None
    copy = copy_without_pods(fleet, card.node, [leaving.pod_uid])

    assert copy.account(card.uuid).free_by_books == fleet.account(card.uuid).free_by_books + leaving.mib
    assert copy.ledger.of_pod(leaving.pod_uid) == ()
    assert fleet.ledger.of_pod(leaving.pod_uid) != ()


@pytest.mark.parametrize(
    ("seen", "used", "unmanaged"),
    [
        pytest.param(observation(9_500, process(9_000, "ns/other"), process(500)), 500, 500, id="listed"),
        pytest.param(observation(500, process(500)), 500, 500, id="listed, but it never used anything"),
        pytest.param(observation(8_500, listed=False), 500, 500, id="without a list its claim goes"),
        pytest.param(observation(300, listed=False), 0, 0, id="never below nothing"),
        pytest.param(
            observation(8_500, process(400, NOT_REPORTED)), 500, 500, id="a list with gaps counts as none"
        ),
        pytest.param(
            observation(9_400, process(9_000, "ns/other"), process(400, NOT_REPORTED)), 400, 400,
            id="what a list with gaps does tell counts",
        ),
    ],
)  # fmt: skip
def test_the_memory_of_a_pod_leaves_the_card_with_it(seen: Observation, used: int, unmanaged: int) -> None:
    fleet = fleet_of(
        node("n1", gpu()), claims=[claim(8_000, started_at=1.0)], observations={"GPU-a": seen}, margin=0
    )
    copy = copy_without_pods(fleet, "n1", ["uid-ns/other"])
    left = copy.observation("GPU-a")

    assert left is not None
    assert (left.used, copy.account("GPU-a").unmanaged) == (used, unmanaged)


def test_a_used_figure_the_card_did_not_tell_stays_unknown() -> None:
    fleet = fleet_of(
        node("n1", gpu()), claims=[claim(8_000)], observations={"GPU-a": observation(listed=False)}
    )
    left = copy_without_pods(fleet, "n1", ["uid-ns/other"]).observation("GPU-a")

    assert left is not None
    assert left.used is NOT_REPORTED


def test_one_card_is_uncordoned_and_no_other() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a", cordoned=True), gpu("GPU-b", cordoned=True)))
    copy = copy_with_card_uncordoned(fleet, "n1", "GPU-a")

    assert [card.cordoned for each in copy.nodes for card in each.gpus] == [False, True]
    assert [card.cordoned for each in fleet.nodes for card in each.gpus] == [True, True]


def test_a_node_that_is_not_in_the_fleet_cannot_be_copied() -> None:
    with pytest.raises(InvariantError, match="no node nx in the fleet"):
        copy_node(fleet_of(), "nx")
