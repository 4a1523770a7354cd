"""Looking ahead: at once where that is asked for, in steps where nobody is to wait."""

import math

import numpy as np
import pytest

from vramline.decide.cutting import PriceSearch
from vramline.decide.prospects import NOWHERE, Prospects, look_ahead, sizes_on_kinds
from vramline.model.ask import MibSize, ShareSize, WholeSize
from vramline.model.fleet import Fleet
from vramline.model.gpu import PhysicalGpu
from vramline.model.mix import AskClass, Mix
from vramline.model.node import Node
from vramline.units import Mib

SIZES = (1_300, 2_900, 3_700, 5_300, 6_100, 7_900, 8_300, 11_900, 13_100, 17_300, 21_700)
STEPS = 4


def node(name: str, total: int) -> Node:
    return Node(
        name=name, gpus=(PhysicalGpu(uuid=f"{name}-0", node=name, index=0, model="L4", total=Mib(total)),)
    )


def mix_of(*sizes: int) -> Mix:
    counts = {AskClass(gpus=1, size=MibSize(Mib(size))): 20 + place for place, size in enumerate(sizes)}
    return Mix(counts)


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet(Mib(0))
    made.set_node(node("a", 24_000))
    made.mix = mix_of(*SIZES)
    return made


def looks_until(fleet: Fleet, wanted: Prospects) -> int:
    """Look once a generation until the prices are these; return how many looks that took."""
    for look in range(1, 1_000):
        if np.allclose(look_ahead(fleet).price, wanted.price, atol=1e-12):
            return look
        fleet.generation += 1
    raise AssertionError("never priced")


def steps_needed() -> int:
    sizes = np.array([-(-size * 1_000 // 24_000) for size in SIZES])
    search = PriceSearch(sizes, np.arange(20, 20 + len(SIZES), dtype=np.float64))
    steps = 0
    while not search.is_over:
        search.step()
        steps += 1
    return steps


def test_a_fleet_that_thinks_in_steps_makes_a_few_in_each_generation_and_ends_with_the_same_prices(
    fleet: Fleet,
) -> None:
    patient = fleet.copy()
    patient.thinks_in_steps = True

    assert looks_until(patient, look_ahead(fleet)) == math.ceil(steps_needed() / STEPS)
    assert steps_needed() > 2 * STEPS


def test_before_sizes_are_priced_no_card_is_worth_more_than_a_card(fleet: Fleet) -> None:
    fleet.thinks_in_steps = True

    first = look_ahead(fleet)

    assert 0 < first.values.max() <= 1 + 1e-9
    assert first.price.max() > 0


def test_within_one_generation_the_same_is_seen(fleet: Fleet) -> None:
    fleet.thinks_in_steps = True

    first = look_ahead(fleet)

    assert all(look_ahead(fleet) is first for _ in range(100))


def test_a_new_mix_counts_when_it_is_thought_through(fleet: Fleet) -> None:
    before = look_ahead(fleet)
    fleet.thinks_in_steps = True
    fleet.mix = mix_of(*(size + 700 for size in SIZES))

    seen = []
    for _ in range(100):
        fleet.generation += 1
        seen.append(look_ahead(fleet))

    assert seen[0] is before
    changed = [each for each in seen if each is not before]
    assert changed
    assert all(each is changed[0] for each in changed)


def test_a_node_more_of_a_known_kind_prices_nothing_anew(fleet: Fleet) -> None:
    before = look_ahead(fleet)
    fleet.thinks_in_steps = True
    fleet.set_node(node("b", 24_000))

    after = look_ahead(fleet)

    assert after is not before
    assert np.array_equal(after.price, before.price)


def test_a_kind_of_card_that_is_new_has_prices_at_once(fleet: Fleet) -> None:
    fleet.thinks_in_steps = True
    look_ahead(fleet)
    fleet.set_node(node("b", 48_000))

    seen = look_ahead(fleet)

    assert seen.price.shape[0] == 2
    assert seen.price[1].max() > 0


def test_a_copy_of_a_fleet_goes_by_what_was_known(fleet: Fleet) -> None:
    fleet.thinks_in_steps = True
    first = look_ahead(fleet)
    copy = fleet.copy()

    for _ in range(50):
        copy.generation += 1

        assert look_ahead(copy) is first


def test_every_class_has_on_every_kind_of_card_the_size_that_it_has_there(fleet: Fleet) -> None:
    fleet.set_node(node("b", 8_000))
    classes = [
        *(AskClass(gpus=1, size=MibSize(Mib(mib))) for mib in (1, 7_999, 8_000, 8_001, 24_000, 24_001)),
        AskClass(gpus=1, size=MibSize(Mib(5_000)), use_models=("l4",)),
        AskClass(gpus=1, size=MibSize(Mib(5_000)), avoid_models=("l4",)),
        AskClass(gpus=2, size=ShareSize(1, 3)),
        AskClass(gpus=1, size=WholeSize()),
    ]
    fleet.mix = Mix({asked: 100 - place for place, asked in enumerate(classes)})

    known = look_ahead(fleet).size

    assert known.T.tolist() == [
        sizes_on_kinds(fleet.columns, asked).tolist() for asked, _ in fleet.mix.typical
    ]
    assert known.min() == 1
    assert known.max() == NOWHERE
