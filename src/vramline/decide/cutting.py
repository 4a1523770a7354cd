"""What a piece of a card is worth, given the sizes that pods usually ask for: the cutting-stock problem.

Cards are stock to be cut into pieces of the usual sizes. The linear programme behind it prices every size
(its dual): sizes that cannot be combined with others to fill a card are dear, those that fit into any
offcut cost nothing. From the prices follows what a residual of a card can still be worth, and what an ask
destroys beyond its own price by being cut from one residual rather than from another.

The programme is small (a few dozen sizes) and solved here, step by step, so that nobody has to wait for it:
the libraries that do it are larger than everything else that Vramline depends on together.
"""

import numpy as np
import numpy.typing as npt

__all__ = ["PARTS", "PriceSearch", "value_residuals"]

PARTS = 1_000
"""A card is cut in thousandths; sizes are rounded up, residuals down."""

_MOST_STEPS = 400
"""On real mixes some dozens suffice, and every step leaves valid prices."""
_TINY = 1e-9
_ENOUGH = 1e-6
"""A card that cuts into no more than this beyond its worth is not worth another step."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class PriceSearch:
    """Looks for the prices of sizes: the simplex method over cuts, which are found when they are needed.

    As many cuts as there are sizes meet the demand; the prices are those at which each of them is worth
    one card. Where a card can be cut into more than that, this cut takes the place of another.
    """

    def __init__(self, sizes: Ints, demand: Floats) -> None:
        """`sizes` are 1 to PARTS − 1, all of them in demand. At first each card is cut into one size."""
        self.is_over = not len(sizes)
        self._sizes = sizes
        pieces = (PARTS // sizes).astype(np.float64)
        self._inverse = np.diag(1.0 / pieces)
        """Of the matrix whose columns are the cuts in use: how many of each size they give."""
        self._cards = demand / pieces
        """How many cards are cut in each of these ways."""
        self._cost = np.ones(len(sizes))
        """1 for a cut; 0 for a piece that is thrown away, because its size comes in surplus."""
        self._steps = 0

    def step(self) -> None:
        """Replace one cut, if a better one exists; else the search is over."""
        prices = self._cost @ self._inverse
        least = int(prices.argmin())
        if prices[least] < -_TINY:
            cut, cost = np.zeros(len(prices)), 0.0
            cut[least] = -1.0
        else:
            prices[prices < _TINY] = 0.0
            values = value_residuals(self._sizes, prices)
            self.is_over = bool(values[PARTS] <= 1 + _ENOUGH)
            cut, cost = _best_cut(self._sizes, prices, values), 1.0
        self._steps += 1
        self.is_over = self.is_over or self._steps >= _MOST_STEPS or not self._take(cut, cost)

    def prices(self) -> Floats:
        """Return the price of each size, in cards; valid at any time: no card cuts into more than 1."""
        prices = self._cost @ self._inverse
        prices[prices < _TINY] = 0.0
        return prices / max(1.0, float(value_residuals(self._sizes, prices)[PARTS]))

    def _take(self, cut: Floats, cost: float) -> bool:
        """Use a cut, in place of the one that is used up first; False: there is none."""
        change = self._inverse @ cut
        shrinking = (change > _TINY).nonzero()[0]
        if not len(shrinking):
            return False
        lasts = self._cards[shrinking] / change[shrinking]
        place = int(shrinking[lasts.argmin()])
        cards = self._cards[place] / change[place]
        self._cards -= cards * change
        self._cards[place] = cards
        self._cost[place] = cost
        self._inverse[place] /= change[place]
        change[place] = 0.0
        self._inverse -= np.outer(change, self._inverse[place])
        return True


def value_residuals(sizes: Ints, prices: Floats) -> Floats:
    """Return what a residual of 0 to PARTS can still be cut into, at these prices."""
    values = np.zeros(PARTS + 1)
    for size, price in zip(sizes.tolist(), prices.tolist(), strict=True):
        pieces = 1
        while price > 0 and pieces * size <= PARTS:  # one more, then two, then four: as many as there is room
            parts = pieces * size
            np.maximum(values[parts:], values[:-parts] + pieces * price, out=values[parts:])
            pieces *= 2
    return values


def _best_cut(sizes: Ints, prices: Floats, values: Floats) -> Floats:
    """Return how many of each size make up the most valuable card."""
    cut, rest, worth = np.zeros(len(sizes)), PARTS, values.tolist()
    dear = [each for each in enumerate(zip(sizes.tolist(), prices.tolist(), strict=True)) if each[1][1] > 0]
    while worth[rest] > _TINY:
        for place, (size, price) in dear:
            if size <= rest and abs(worth[rest - size] + price - worth[rest]) <= _TINY:
                cut[place] += 1
                rest -= size
                break
        else:
            break
    return cut
