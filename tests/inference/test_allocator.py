"""What PyTorch's allocator counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramline.inference.allocator import allocated_bytes

MIB = 2**20


@pytest.mark.parametrize(
    ("sizes", "allocated"),
    [
        pytest.param([224.0], 224.0, id="a multiple of two"),
        pytest.param([259.0], 260.0, id="one MiB is left: it is not cut off"),
        pytest.param([24.5], 24.5, id="more is left: it is cut off"),
        pytest.param([9.0, 9.0], 18.0, id="two of one segment"),
        pytest.param([9.0, 10.5 - 1 / 2048], 20.0, id="a rest of one segment that is too small to cut"),
        pytest.param([0.25] * 8, 2.0, id="small ones share a segment"),
        pytest.param([24.5, 1.5], 26.0, id="what was cut off is used again"),
        pytest.param([], 0.0, id="nothing"),
    ],
)
def test_blocks_are_cut_where_enough_is_left(sizes: list[float], allocated: float) -> None:
    assert allocated_bytes([size * MIB for size in sizes]) / MIB == pytest.approx(allocated, abs=0.001)


@given(st.lists(st.floats(1, 400 * MIB), max_size=60))
def test_never_less_than_the_tensors_and_never_a_mib_more_for_each(sizes: list[float]) -> None:
    whole = sum(int(size) for size in sizes)

    assert whole <= allocated_bytes(sizes) <= whole + len(sizes) * (MIB + 512)
