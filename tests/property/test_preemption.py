"""What must hold for every choice of victims."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

import builders
from strategies import NOW, asks, fleets
from vramline.decide.engine import decide
from vramline.decide.preempt import Evictable, choose_victims, leaving_pods
from vramline.decide.whatif import copy_without_pods
from vramline.model.ask import Ask
from vramline.model.fleet import Fleet
from vramline.model.rules import Rules

PRIORITIES = st.lists(st.integers(0, 4), min_size=6, max_size=6)
PREEMPTOR = 3


@st.composite
def crowded_fleets(draw: st.DrawFn) -> Fleet:
    """One node whose cards are shared by several pods each, so that often more than one has to go."""
    cards = [builders.gpu(f"GPU-{number}", 10_100) for number in range(draw(st.integers(1, 2)))]
    claims = [
        builders.claim(draw(st.integers(1_500, 4_500)), f"ns/{number}", gpu=draw(st.sampled_from(cards)).uuid)
        for number in range(6)
    ]
    return builders.fleet_of(builders.node("n", *cards), claims=claims)


def makes_room(fleet: Fleet, node: str, ask: Ask, gone: set[str]) -> bool:
    left = copy_without_pods(fleet, node, leaving_pods(fleet, node) | gone)
    return decide(left, ask, Rules(), now=NOW).placement is not None


@given(
    st.one_of(fleets(), crowded_fleets()),
    asks() | st.builds(builders.ask, st.integers(4_000, 10_000)),
    PRIORITIES,
    st.sets(st.integers(0, 5)),
)
def test_victims_make_room_and_none_of_them_can_be_spared(
    fleet: Fleet, ask: Ask, priorities: list[int], preferred: set[int]
) -> None:
    pods = [
        Evictable(f"uid-ns/{number}", priority, preferred=number in preferred)
        for number, priority in enumerate(priorities)
        if priority < PREEMPTOR
    ]
    priority_of = {pod.uid: pod.priority for pod in pods}
    for node in fleet.nodes:
        victims = choose_victims(fleet, node.name, ask, Rules(), now=NOW, pods=pods)
        leaving = leaving_pods(fleet, node.name)
        if victims is None:
            everybody = set(priority_of) - leaving
            assert not makes_room(fleet, node.name, ask, everybody)
            continue
        assert makes_room(fleet, node.name, ask, set(victims))
        assert set(victims) <= set(priority_of) - leaving
        for size in range(len(victims)):
            for fewer in combinations(victims, size):
                assert not makes_room(fleet, node.name, ask, set(fewer))
        # Nobody less important alone would have done.
        if victims:
            highest = max(priority_of[uid] for uid in victims)
            lower = {uid for uid, priority in priority_of.items() if priority < highest} - leaving
            assert not makes_room(fleet, node.name, ask, lower)
