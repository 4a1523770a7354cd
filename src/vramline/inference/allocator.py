"""What PyTorch's allocator hands out for tensors: in blocks, of which a small rest is not used again.

Engines report the memory of weights as the allocator counts it. It takes memory from the driver in segments:
2 MiB for tensors up to 1 MiB, 20 MiB for those below 10 MiB, and else a multiple of 2 MiB. A block is cut
to the tensor's size only where more than 1 MiB (for small tensors 512 bytes) would be left; otherwise the
rest belongs to the tensor. A matrix of 259 MiB takes 260, and in every layer of a model that adds up.
"""

import bisect
from collections.abc import Iterable

__all__ = ["allocated_bytes"]

_MIB = 2**20
_STEP = 512
_SMALL = _MIB
_SMALL_SEGMENT = 2 * _MIB
_MIDDLE_SEGMENT = 20 * _MIB
_LARGE = 10 * _MIB
_ROUND_LARGE = 2 * _MIB


def allocated_bytes(sizes: Iterable[float]) -> int:
    """Return the bytes that the allocator counts for tensors that are made in this order and kept.

    >>> allocated_bytes([259 * 2**20]) // 2**20, allocated_bytes([24.5 * 2**20]) / 2**20
    (260, 24.5)
    """
    small: list[int] = []
    large: list[int] = []
    total = 0
    for size in sizes:
        wanted = -(-int(size) // _STEP) * _STEP
        is_small = wanted <= _SMALL
        free = small if is_small else large
        block = _take(free, wanted) or _segment(wanted)
        rest = block - wanted
        if rest >= _STEP if is_small else rest > _SMALL:
            bisect.insort(free, rest)
            total += wanted
        else:
            total += block
    return total


def _take(free: list[int], wanted: int) -> int:
    """Take the smallest free block that is large enough; 0: there is none."""
    place = bisect.bisect_left(free, wanted)
    return free.pop(place) if place < len(free) else 0


def _segment(wanted: int) -> int:
    if wanted <= _SMALL:
        return _SMALL_SEGMENT
    if wanted < _LARGE:
        return _MIDDLE_SEGMENT
    return -(-wanted // _ROUND_LARGE) * _ROUND_LARGE
