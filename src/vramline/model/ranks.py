"""The stable order of nodes: by name, whatever numbers they have."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Ranks", "rank_nodes"]

Ints = npt.NDArray[np.int64]


class Ranks(NamedTuple):
    """Nodes by number, and by rank. Not to be written to."""

    rank: Ints
    """By number; as many as there are numbers where nobody has the number."""
    live: Ints
    """The numbers that somebody has, ascending."""
    by_rank: Ints | None
    """The same in the order of rank; None: it is the same order, as where nodes came by name."""


def rank_nodes(names: Sequence[str | None]) -> Ranks:
    """Rank nodes by name; None: nobody has this number.

    >>> rank_nodes(["b", None, "a"]).rank.tolist()
    [1, 3, 0]
    """
    order = sorted((name, number) for number, name in enumerate(names) if name is not None)
    by_rank = np.array([number for _, number in order], dtype=np.int64)
    rank = np.full(len(names), len(names), dtype=np.int64)
    rank[by_rank] = np.arange(len(order))
    live = np.sort(by_rank)
    return Ranks(rank, live, None if np.array_equal(by_rank, live) else by_rank)
