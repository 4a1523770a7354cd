"""Things that are alike, told apart by a number: so that what is true of all of them is worked out once."""

import numpy as np
import numpy.typing as npt

__all__ = ["tell_apart"]

_MOST = 2**22
"""Up to so large numbers a table is quicker than sorting."""

Ints = npt.NDArray[np.int64]


def tell_apart(keys: Ints) -> tuple[Ints, Ints]:
    """Return the place of one thing of each sort, and which of these each is like; keys are from 0 on."""
    span = int(keys.max(initial=-1)) + 1
    if span > _MOST:
        _, first, like = np.unique(keys, return_index=True, return_inverse=True)
        return first, like
    is_there = np.zeros(span, dtype=np.bool_)
    is_there[keys] = True
    sorts = is_there.nonzero()[0]
    number = np.empty(span, dtype=np.int64)
    number[sorts] = np.arange(len(sorts))
    like = number.take(keys)
    first = np.empty(len(sorts), dtype=np.int64)
    first[like] = np.arange(len(keys))
    return first, like
