"""The stable order of nodes."""

import pytest

from vramline.model.ranks import rank_nodes


@pytest.mark.parametrize(
    ("names", "rank", "live", "by_rank"),
    [
        pytest.param([], [], [], None, id="nobody"),
        pytest.param(["a", "b"], [0, 1], [0, 1], None, id="they came by name"),
        pytest.param(["a", None, "b"], [0, 3, 1], [0, 2], None, id="by name, and one left"),
        pytest.param(["b", None, "a"], [1, 3, 0], [0, 2], [2, 0], id="another order"),
    ],
)
def test_nodes_rank_by_name(
    names: list[str | None], rank: list[int], live: list[int], by_rank: list[int] | None
) -> None:
    found = rank_nodes(names)

    assert found.rank.tolist() == rank
    assert found.live.tolist() == live
    assert (None if found.by_rank is None else found.by_rank.tolist()) == by_rank
