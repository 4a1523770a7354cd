"""What changed since: the same answer from the list of the last changes as from all stamps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramline.model.changes import Changes

STEPS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), max_size=400)


@given(STEPS, st.integers(0, 400))
def test_what_changed_after_a_version_is_told_once_and_in_order(steps: list[list[int]], back: int) -> None:
    changes = Changes(10)
    happened: list[list[int]] = []
    for step in steps:
        changes.note_all(np.array(step))
        happened.append(step)

    since = max(0, changes.version - back)

    assert changes.since(since).tolist() == sorted({number for step in happened[since:] for number in step})


def test_a_copy_goes_on_by_itself() -> None:
    changes = Changes(4)
    changes.note(1)
    copy = changes.copy()
    copy.note(2)

    assert changes.since(0).tolist() == [1]
    assert copy.since(0).tolist() == [1, 2]


def test_there_is_room_for_a_number_that_was_never_heard_of() -> None:
    changes = Changes(2)

    changes.note(100)

    assert changes.since(0).tolist() == [100]
    assert changes.since(-1).tolist() == list(range(101))


@pytest.mark.parametrize(
    ("noted", "since", "only"),
    [
        pytest.param([], 0, None, id="nothing changed"),
        pytest.param([7], 0, 7, id="one did"),
        pytest.param([7, 7, 7], 0, 7, id="the same one again"),
        pytest.param([3, 7], 0, None, id="two did"),
        pytest.param([3, 7, 7], 1, 7, id="one since then"),
        pytest.param([5] * 1_000, 0, None, id="too long ago to be listed"),
    ],
)
def test_the_only_thing_that_changed_is_told(noted: list[int], since: int, only: int | None) -> None:
    changes = Changes()
    for number in noted:
        changes.note(number)

    assert changes.only_since(since) == only
