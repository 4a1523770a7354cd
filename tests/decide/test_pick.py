"""Nodes in the order of their scores."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builders import fleet_of, gpu, node
from vramline.decide.pick import best_first, rank_by_score
from vramline.model.reason import CODE_OF, FITS, Reason

REFUSED = CODE_OF[Reason.INSUFFICIENT_VRAM]


@given(st.data())
def test_the_first_few_of_those_that_fit_are_the_first_of_all_by_score_and_then_by_name(
    data: st.DataObject,
) -> None:
    names = data.draw(st.lists(st.sampled_from("abcdefghij"), min_size=1, unique=True))
    fits = data.draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names)))
    scores = data.draw(st.lists(st.integers(-3, 3), min_size=len(names), max_size=len(names)))
    most = data.draw(st.integers(0, sum(fits)))
    fleet = fleet_of(*(node(name, gpu(f"GPU-{name}")) for name in names))
    codes = np.array([FITS if fit else REFUSED for fit in fits], dtype=np.int8)

    ranking = rank_by_score(fleet, codes, np.array(scores))
    found = [fleet.name_of(number) for number in best_first(fleet, ranking.scores, most).tolist()]

    listed = sorted((-score, name) for name, score, fit in zip(names, scores, fits, strict=True) if fit)
    assert ranking.fitting == len(listed)
    assert found == [name for _, name in listed[:most]]
    assert [fleet.name_of(number) for number in ranking.best.tolist()] == [
        name for score, name in listed if score == listed[0][0]
    ]
