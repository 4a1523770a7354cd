"""Prices of sizes: no card cuts into more than one card's worth, and no better prices exist."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramline.decide.cutting import PARTS, PriceSearch, value_residuals

MIXES = st.dictionaries(st.integers(20, PARTS - 1), st.integers(1, 500), min_size=1, max_size=12)


def prices_of(demand: dict[int, int]) -> dict[int, float]:
    sizes = np.array(sorted(demand))
    search = PriceSearch(sizes, np.array([demand[size] for size in sizes], dtype=np.float64))
    while not search.is_over:
        search.step()
    return dict(zip(sizes.tolist(), search.prices().tolist(), strict=True))


@pytest.mark.parametrize(
    ("demand", "expected"),
    [
        pytest.param({500: 10}, {500: 0.5}, id="halves are worth halves"),
        pytest.param({810: 10, 160: 3}, {810: 1.0, 160: 0.0}, id="what fits into any offcut costs nothing"),
        pytest.param({700: 10, 300: 10}, {700: 1.0, 300: 0.0}, id="each is cut beside the other"),
        pytest.param({700: 1, 300: 10}, {700: 2 / 3, 300: 1 / 3}, id="thirds, once the sevens are gone"),
    ],
)
def test_prices_of_small_mixes(demand: dict[int, int], expected: dict[int, float]) -> None:
    prices = prices_of(demand)

    worth = sum(demand[size] * price for size, price in prices.items())
    assert worth == pytest.approx(sum(demand[size] * price for size, price in expected.items()))


@given(MIXES)
@settings(max_examples=60, deadline=None)
def test_no_card_cuts_into_more_than_a_card_is_worth(demand: dict[int, int]) -> None:
    prices = prices_of(demand)

    values = value_residuals(np.array(list(prices)), np.array(list(prices.values())))

    assert values[PARTS] <= 1 + 1e-6
    assert min(prices.values()) >= 0


@given(MIXES)
@settings(max_examples=60, deadline=None)
def test_a_larger_residual_is_never_worth_less_and_an_ask_never_gains(demand: dict[int, int]) -> None:
    prices = prices_of(demand)
    values = value_residuals(np.array(list(prices)), np.array(list(prices.values())))

    assert (np.diff(values) >= 0).all()
    for size, price in prices.items():
        assert (values[size:] - values[: PARTS + 1 - size] >= price - 1e-9).all()


@given(MIXES)
@settings(max_examples=40, deadline=None)
def test_prices_add_up_to_no_more_than_the_cards_that_a_simple_cutter_needs(demand: dict[int, int]) -> None:
    """Any way to cut is an upper bound of the price of everything: first fit, largest first."""
    cards: list[int] = []
    for size in sorted(demand, reverse=True):
        for _ in range(demand[size]):
            place = next((i for i, left in enumerate(cards) if left >= size), None)
            if place is None:
                cards.append(PARTS - size)
            else:
                cards[place] -= size

    worth = sum(demand[size] * price for size, price in prices_of(demand).items())

    assert worth <= len(cards) + 1e-6


@given(MIXES)
@settings(max_examples=20, deadline=None)
def test_after_every_step_no_card_cuts_into_more_than_a_card_and_in_the_end_no_prices_are_higher(
    demand: dict[int, int],
) -> None:
    sizes = np.array(sorted(demand))
    wanted = np.array([demand[size] for size in sizes], dtype=np.float64)
    search = PriceSearch(sizes, wanted)
    worth = [float(search.prices() @ wanted)]

    while not search.is_over:
        search.step()
        assert value_residuals(sizes, search.prices())[PARTS] <= 1 + 1e-9
        worth.append(float(search.prices() @ wanted))

    assert worth[-1] >= max(worth) - 1e-3 * max(worth)


def test_where_nothing_is_asked_for_there_is_nothing_to_search() -> None:
    search = PriceSearch(np.zeros(0, dtype=np.int64), np.zeros(0))

    assert search.is_over
    assert not len(search.prices())
