import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

import builders
from scheduler.worlds import NOW, cluster_of
from vramline.dashboard.bars import Part, card_parts, draw_bar
from vramline.explain.cards import card_state

KINDS = st.sampled_from(["held", "releasing", "unmanaged", "margin", "free", "unknown"])


def test_the_parts_of_a_card_add_up_to_what_is_usable() -> None:
    cluster = cluster_of(
        builders.node("n1", builders.gpu("GPU-a")),
        GPU_a=builders.observation(15_000, builders.process(6_000), at=NOW - 1),
    )
    cluster.fleet.adopt([builders.claim(9_000, "ns/runs", gpu="GPU-a", started_at=1.0)])
    card = card_state(cluster.fleet, "GPU-a", now=NOW, max_age_s=90.0)

    assert sum(part.mib for part in card_parts(card, str)) == card.usable_mib


def test_a_name_is_not_taken_for_markup() -> None:
    drawn = draw_bar([Part("held", 10, "<script>", 'x"><script>')], 10, '"><script>')

    assert "<script>" not in drawn


@given(st.lists(st.tuples(KINDS, st.integers(0, 200_000)), max_size=20), st.integers(0, 200_000))
def test_no_bar_is_longer_than_its_whole(parts: list[tuple[str, int]], whole: int) -> None:
    drawn = draw_bar([Part(kind, mib, "", "") for kind, mib in parts], whole, "")
    places = [
        (float(x), float(width)) for x, width in re.findall(r'<svg x="([\d.]+)%" width="([\d.]+)%"', drawn)
    ]

    assert all(x + width <= 100.01 for x, width in places)
    assert all(left[0] <= right[0] for left, right in pairwise(places))
