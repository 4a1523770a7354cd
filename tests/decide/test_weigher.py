"""Many nodes weighed at once cost what each of them costs by itself, whatever they are like."""

import random
from collections.abc import Iterator

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import ask, claim, fleet_of, gpu, node, observation
from vramline.decide.alike import tell_apart
from vramline.decide.engine import decide
from vramline.decide.weighing import MANY
from vramline.model.ask import Ask, MibSize, PolicyName, RealtimeMode, ShareSize, WholeSize
from vramline.model.claim import Claim
from vramline.model.fleet import Fleet
from vramline.model.host import HostColumns
from vramline.model.mix import Mix, class_of
from vramline.model.node import HostRoom, Node
from vramline.model.rules import Rules
from vramline.units import Mib

NOW = 1_000.0
NODES = MANY + 20
KINDS = (("Tesla T4", 15_360), ("NVIDIA L40S", 46_068), ("NVIDIA H100", 81_559))


def some_node(chance: random.Random, number: int, *, alike: bool) -> Node:
    """A node of one to five cards; mixed ones are seldom."""
    width = 4 if alike else chance.randint(1, 5)
    kinds = chance.choices(KINDS, k=width) if chance.random() < 0.1 else [chance.choice(KINDS)] * width
    cards = (
        gpu(f"GPU-{number}-{place}", total, model=model, numa=place % 2)
        for place, (model, total) in enumerate(kinds)
    )
    return node(f"n{number:03}", *cards, host=HostRoom(cpu_milli=chance.choice((2_000, 16_000, 64_000))))


def some_claims(chance: random.Random, fleet: Fleet, *, odd: bool) -> Iterator[Claim]:
    for each in fleet.nodes:
        for card in each.gpus:
            if chance.random() < 0.6:
                mib = chance.randint(100, 15_000) if odd else chance.choice((1_000, 4_000, 15_000))
                cores = chance.choice((0, 0, 100))
                yield claim(mib, f"ns/{card.uuid}", gpu=card.uuid, cores=cores)


def some_ask(chance: random.Random) -> Ask:
    size = chance.choice(
        (MibSize(Mib(chance.randint(500, 50_000))), ShareSize(1, chance.choice((2, 8))), WholeSize())
    )
    return ask(
        size,
        gpus=chance.choice((1, 1, 1, 2, 4)),
        cpu_milli=chance.choice((0, 1_000, 8_000)),
        cores=chance.choice((0, 50)),
        use_models=chance.choice(((), (), ("h100",))),
        numa_bind=chance.random() < 0.2,
        gpu_policy=chance.choice((None, None, PolicyName.SPREAD)),
    )


def some_fleet(chance: random.Random) -> Fleet:
    """So many nodes that they are weighed together; of some cards nobody knows how they are."""
    alike = chance.random() < 0.5
    machines = [some_node(chance, number, alike=alike) for number in range(NODES)]
    fleet = fleet_of(*machines)
    fleet.adopt(some_claims(chance, fleet, odd=chance.random() < 0.5))
    seen = chance.choice((0.0, 0.9, 1.0))
    for each in machines:
        for card in each.gpus:
            if chance.random() < seen:
                fleet.observe(card.uuid, observation(chance.choice((0, 3_000)), at=NOW))
    fleet.hosts = HostColumns()
    for number, each in enumerate(machines):
        fleet.hosts.set_node(number, each)
    return fleet


@given(
    st.integers(0, 2**32),
    st.sampled_from([PolicyName.VRAMLINE, PolicyName.FGD]),
    st.sampled_from([RealtimeMode.STRICT, RealtimeMode.STRICT, RealtimeMode.WARNING]),
)
@settings(max_examples=25, deadline=None)
def test_what_is_weighed_together_costs_what_it_costs_a_few_at_a_time(
    seed: int, policy: PolicyName, mode: RealtimeMode
) -> None:
    chance = random.Random(seed)
    fleet, rules = some_fleet(chance), Rules(policy=policy, mode=mode)
    usual = [some_ask(chance) for _ in range(6)]
    fleet.mix = Mix({class_of(each): 10 + place for place, each in enumerate(usual)})
    for wish in (*usual[:2], some_ask(chance)):
        together = decide(fleet, wish, rules, now=NOW)
        for start in range(0, NODES, MANY // 3):
            fleet.columns.changes.note_all(np.arange(start, min(start + MANY // 3, NODES)))
            few = decide(fleet, wish, rules, now=NOW)

        assert few.scores.tolist() == together.scores.tolist()
        assert few.placement == together.placement
        assert few.lacking.tolist() == together.lacking.tolist()


def test_where_no_node_has_enough_cards_none_is_weighed() -> None:
    fleet = fleet_of(*(node(f"n{number}", gpu(f"GPU-{number}", 10_100)) for number in range(NODES)))
    wish = ask(4_000, gpus=2)
    fleet.mix = Mix({class_of(wish): 40})

    assert decide(fleet, wish, Rules(), now=NOW).placement is None
    assert decide(fleet, msgspec.structs.replace(wish, gpus=1), Rules(), now=NOW).placement is not None


def test_where_there_are_no_cards_at_all_several_are_refused() -> None:
    for policy in PolicyName:
        assert decide(Fleet(), ask(4_000, gpus=2), Rules(policy=policy), now=NOW).placement is None


@given(st.lists(st.one_of(st.integers(0, 20), st.integers(0, 2**60)), max_size=60))
def test_things_are_told_apart_by_their_numbers_however_large_these_are(numbers: list[int]) -> None:
    keys = np.array(numbers, dtype=np.int64)

    first, like = tell_apart(keys)

    assert keys[first][like].tolist() == numbers
    assert len(first) == len(set(numbers))
