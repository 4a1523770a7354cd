"""What sizes and residuals are worth on each kind of card: worked out in steps, and kept."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramline.decide.cutting import PARTS, PriceSearch, value_residuals
from vramline.model.columns import CardKind

__all__ = ["Asked", "Prices", "asked_of_kinds"]

_MOST_SIZES = 24
"""Sizes that are priced: the most wanted ones."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Asked(NamedTuple):
    """The shares that are asked of a kind of card: thousandths of it, ascending, and how often each."""

    sizes: Ints
    demand: Floats

    @property
    def key(self) -> bytes:
        """The same for kinds of which the same is asked."""
        return self.sizes.tobytes() + self.demand.tobytes()


class _Worth(NamedTuple):
    prices: Floats
    values: Floats


class Prices:
    """Prices of sizes, by what is asked."""

    def __init__(self) -> None:
        self.seen: int | None = None
        """The generation of the fleet for which the last steps were made."""
        self.rests = False
        """Whether this is that of a copy: it goes by what was known when it was made."""
        self._known: dict[bytes, _Worth] = {}
        self._searches: dict[bytes, PriceSearch] = {}

    def fork(self) -> "Prices":
        """Return the same for a copy of the fleet."""
        copy = Prices()
        copy.rests, copy._known = True, dict(self._known)
        return copy

    def work(self, asked: list[Asked], *, steps: float) -> bool:
        """Go on with what is not known yet, at most so many steps; whether everything is known now."""
        wanted = {each.key: each for each in asked}
        self._searches = {key: search for key, search in self._searches.items() if key in wanted}
        for key, each in wanted.items():
            if key in self._known:
                continue
            search = self._searches.setdefault(key, PriceSearch(each.sizes, each.demand))
            while steps > 0 and not search.is_over:
                search.step()
                steps -= 1
            if search.is_over:
                self._known[key] = _worth(each, self._searches.pop(key))
        if self._searches:
            return False
        self._known = {key: self._known[key] for key in wanted}
        return True

    def of(self, asked: list[Asked]) -> tuple[Floats, Floats]:
        """Return the values of residuals and the prices of sizes, [kind, 0…PARTS]; the best known so far."""
        values, price = np.zeros((len(asked), PARTS + 1)), np.zeros((len(asked), PARTS + 1))
        for kind, each in enumerate(asked):
            worth = self._known.get(each.key)
            if worth is None:
                search = self._searches.get(each.key)
                worth = _worth(each, search or PriceSearch(each.sizes, each.demand))
            price[kind, each.sizes], values[kind] = worth
        return values, price


def asked_of_kinds(kinds: list[CardKind], size: Ints, demand: Floats) -> list[Asked]:
    """Return the shares that are asked of each kind; `size` is [k, m] in MiB, `demand` by class m."""
    return [_asked(kind, size[k], demand) for k, kind in enumerate(kinds)]


def _asked(kind: CardKind, size: Ints, demand: Floats) -> Asked:
    parts = -(-size * PARTS // max(kind.promise, 1))
    shares = (parts < PARTS) & (parts > 0) & (demand > 0)
    wanted = np.bincount(parts[shares], weights=demand[shares], minlength=PARTS).astype(np.float64)
    sizes = np.sort(np.argsort(-wanted, kind="stable")[:_MOST_SIZES])
    sizes = sizes[wanted[sizes] > 0]
    return Asked(sizes, wanted[sizes])


def _worth(asked: Asked, search: PriceSearch) -> _Worth:
    prices = search.prices()
    return _Worth(prices, value_residuals(asked.sizes, prices))
