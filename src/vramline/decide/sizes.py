"""What an ask means on each card: MiB are MiB, a share is a share of what the empty card can promise."""

from typing import assert_never

import numpy as np
import numpy.typing as npt

from vramline.model.ask import MibSize, ShareSize, Size, UnsizedSize, WholeSize
from vramline.model.columns import GpuColumns

__all__ = ["size_on_each_card"]


def size_on_each_card(columns: GpuColumns, size: Size, *, unsized_is_whole: bool) -> npt.NDArray[np.int64]:
    """Return the MiB that `size` claims on each row. Shares are rounded down, so that n pods of 1/n fit."""
    promise: npt.NDArray[np.int64] = columns.promise
    match size:
        case MibSize(mib):
            return np.full(len(columns), mib, dtype=np.int64)
        case ShareSize(numerator, denominator):
            return promise * numerator // denominator
        case WholeSize():
            return promise.copy()
        case UnsizedSize():
            return promise.copy() if unsized_is_whole else promise // columns.slots
        case _:
            assert_never(size)
