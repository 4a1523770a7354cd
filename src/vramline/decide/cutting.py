"""What a piece of a card is worth, given the sizes that pods usually ask for: the cutting-stock problem.

Cards are stock to be cut into pieces of the usual sizes. The linear programme behind it prices every size
(its dual): sizes that cannot be combined with others to fill a card are dear, those that fit into any
offcut cost nothing. From the prices follows what a residual of a card can still be worth, and what an ask
destroys beyond its own price by being cut from one residual rather than from another.

The programme is small (a few dozen sizes) and solved here: the libraries that do it are larger than
everything else that Vramline depends on together.
"""

import numpy as np
import numpy.typing as npt

__all__ = ["PARTS", "price_sizes", "value_residuals"]

PARTS = 1_000
"""A card is cut in thousandths; sizes are rounded up, residuals down."""

_ROUNDS = 60
"""Cuts found one after the other; on real mixes a dozen suffices, and every round gives valid prices."""
_TINY = 1e-9

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def price_sizes(sizes: Ints, demand: Floats) -> Floats:
    """Return the price of each size (1 to PARTS − 1), in cards, so that no card cuts into more than 1."""
    cuts = np.diag(PARTS // sizes).astype(np.float64)
    prices = np.zeros(len(sizes))
    for _ in range(_ROUNDS):
        prices = _dearest(demand, cuts)
        values = value_residuals(sizes, prices)
        if values[PARTS] <= 1 + 1e-6:
            return prices
        cuts = np.vstack([cuts, _best_cut(sizes, prices, values)])
    return prices / max(1.0, float(value_residuals(sizes, prices)[PARTS]))


def value_residuals(sizes: Ints, prices: Floats) -> Floats:
    """Return what a residual of 0 to PARTS can still be cut into, at these prices."""
    values = np.zeros(PARTS + 1)
    for size, price in zip(sizes.tolist(), prices.tolist(), strict=True):
        if price <= 0:
            continue
        for start in range(size, PARTS + 1, size):
            end = min(start + size, PARTS + 1)
            np.maximum(
                values[start:end],
                values[start - size : end - size] + price,
                out=values[start:end],
            )
    return values


def _best_cut(sizes: Ints, prices: Floats, values: Floats) -> Floats:
    """Return how many of each size make up the most valuable card."""
    cut = np.zeros(len(sizes))
    rest = PARTS
    while values[rest] > _TINY:
        for place in np.flatnonzero((sizes <= rest) & (prices > 0)).tolist():
            if abs(values[rest - sizes[place]] + prices[place] - values[rest]) <= _TINY:
                cut[place] += 1
                rest -= int(sizes[place])
                break
        else:
            break
    return cut


def _dearest(demand: Floats, cuts: Floats) -> Floats:
    """Maximise demand · prices with cuts · prices ≤ 1 and prices ≥ 0, by the simplex method.

    Prices of zero are feasible, so that no first phase is needed. The steepest column enters, which is quick;
    should that go on for long, the first one (Bland's rule), which never circles.
    """
    rows, columns = cuts.shape
    table = np.zeros((rows + 1, columns + rows + 1))
    table[:rows, :columns] = cuts
    table[:rows, columns : columns + rows] = np.eye(rows)
    table[:rows, -1] = 1.0
    table[rows, :columns] = -demand
    basis = np.arange(columns, columns + rows)
    patience = 5 * (rows + columns)
    for step in range(10 * patience):
        entering = np.flatnonzero(table[rows, :-1] < -_TINY)
        if not len(entering):
            break
        column = int(entering[0]) if step > patience else int(np.argmin(table[rows, :-1]))
        positive = np.flatnonzero(table[:rows, column] > _TINY)
        ratios = table[positive, -1] / table[positive, column]
        tied = positive[ratios <= ratios.min() + _TINY]
        row = int(tied[np.argmin(basis[tied])])
        table[row] /= table[row, column]
        others = np.arange(rows + 1) != row
        table[others] -= np.outer(table[others, column], table[row])
        basis[row] = column
    prices = np.zeros(columns + rows)
    prices[basis] = table[:rows, -1]
    return np.maximum(prices[:columns], 0.0)
