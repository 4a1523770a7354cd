"""Cards as a grid, a line for each node: all nodes are looked through at once, without sorting them."""

import numpy as np
import numpy.typing as npt

from vramline.model.columns import GpuColumns

__all__ = ["as_grid", "cheapest"]

Ints = npt.NDArray[np.int64]


def as_grid(columns: GpuColumns, values: Ints, beyond: int) -> Ints:
    """Return [block, place] the values of the rows; `beyond` where a block has no more cards."""
    width = int(columns.widths.max(initial=0))
    if width * len(columns.blocks) == len(values):
        return values.reshape(len(columns.blocks), width)
    grid = np.full((len(columns.blocks), width), beyond, dtype=np.int64)
    grid[columns.block, np.arange(len(values)) - columns.starts[columns.block]] = values
    return grid


def cheapest(columns: GpuColumns, costs: Ints, number: int, *, never: int) -> tuple[Ints, Ints]:
    """Return which blocks have so many cards that cost less than `never`, and [block, 1…number] their rows.

    The cheapest ones, of equal ones the first; costs are 0 to 2^40.
    """
    grid = as_grid(columns, np.minimum(costs, never), never)
    width = grid.shape[1]
    if width < number:
        return np.zeros(0, dtype=np.int64), np.zeros((0, number), dtype=np.int64)
    packed = np.sort(grid * width + np.arange(width), axis=1)[:, :number]
    blocks: Ints = (packed[:, -1] < never * width).nonzero()[0]
    rows: Ints = packed[blocks] % width + columns.starts[blocks, None]
    return blocks, rows
