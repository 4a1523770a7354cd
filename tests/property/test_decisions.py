"""What must hold for every fleet and every ask."""

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builders import ask as one_ask
from builders import fleet_of, gpu, node
from reference import World
from strategies import NOW, asks, cards, fleets
from vramline.decide.engine import decide
from vramline.decide.reserve import reservation_of
from vramline.model.ask import Ask, PolicyName, RealtimeMode
from vramline.model.fleet import Fleet
from vramline.model.gpu import PhysicalGpu
from vramline.model.reason import FITS
from vramline.model.rules import Rules

ANY_RULES = st.builds(
    Rules,
    mode=st.sampled_from(RealtimeMode),
    policy=st.sampled_from(PolicyName),
    stale_refuses=st.booleans(),
    unsized_is_whole=st.booleans(),
)


def world_of(fleet: Fleet) -> World:
    world = World(fleet.margin)
    world.nodes = {each.name: each for each in fleet.nodes}
    world.claims = list(fleet.ledger)
    for each in fleet.nodes:
        for card in each.gpus:
            seen = fleet.observation(card.uuid)
            if seen is not None:
                world.observations[card.uuid] = seen
    return world


def feasible(fleet: Fleet, ask: Ask, rules: Rules) -> set[str]:
    decision = decide(fleet, ask, rules, now=NOW)
    return {fleet.name_of(int(number)) for number in np.flatnonzero(decision.node_codes == FITS)}


@given(fleets(), asks(), ANY_RULES)
def test_columns_agree_with_the_slow_reference(fleet: Fleet, ask: Ask, rules: Rules) -> None:
    rules = msgspec.structs.replace(rules, stale_refuses=False)
    world = world_of(fleet)
    decision = decide(fleet, ask, rules, now=NOW)
    for each in fleet.nodes:
        for card in each.gpus:
            row = fleet.columns.row_of[card.uuid]
            assert decision.free[row] == world.free(card, rules, NOW)
            assert decision.sizes[row] == world.size(card, ask, rules)
            assert (decision.row_codes[row] == FITS) == world.fits(card, ask, rules, NOW)


@given(fleets(), asks())
def test_the_tightest_cards_are_those_that_the_slow_reference_chooses(fleet: Fleet, ask: Ask) -> None:
    decision = decide(fleet, ask, Rules(), now=NOW)
    chosen = (
        None
        if decision.placement is None
        else (decision.placement.node, tuple(share.uuid for share in decision.placement.gpus))
    )

    assert chosen == world_of(fleet).place(ask, Rules(), NOW)


@given(fleets(), asks(), ANY_RULES)
def test_what_is_placed_can_be_reserved_and_is_on_distinct_cards(
    fleet: Fleet, ask: Ask, rules: Rules
) -> None:
    decision = decide(fleet, ask, rules, now=NOW)
    if decision.placement is None:
        return
    cards_taken = [share.uuid for share in decision.placement.gpus]

    assert len(set(cards_taken)) == ask.gpus
    fleet.reserve(reservation_of(decision))  # raises where it would over-promise
    assert all(fleet.account(uuid).free_by_books >= 0 for uuid in cards_taken)


@given(fleets(), asks(), st.sampled_from(PolicyName), st.booleans())
def test_strict_places_nowhere_that_warning_would_not_and_warning_is_disabled(
    fleet: Fleet, ask: Ask, policy: PolicyName, stale_refuses: bool
) -> None:
    strict, warning, disabled = (
        feasible(fleet, ask, Rules(mode=mode, policy=policy, stale_refuses=stale_refuses))
        for mode in (RealtimeMode.STRICT, RealtimeMode.WARNING, RealtimeMode.DISABLED)
    )

    assert strict <= warning == disabled


@given(fleets(), asks(), ANY_RULES, st.data())
def test_a_card_more_never_makes_a_feasible_ask_infeasible(
    fleet: Fleet, ask: Ask, rules: Rules, data: st.DataObject
) -> None:
    before = feasible(fleet, ask, rules)
    name = data.draw(st.sampled_from(sorted(each.name for each in fleet.nodes)))
    old = fleet.node(name)
    assert old is not None
    more: PhysicalGpu = data.draw(cards(f"GPU-{name}-more", name))
    fleet.set_node(msgspec.structs.replace(old, gpus=(*old.gpus, more)))

    assert before <= feasible(fleet, ask, rules)


@given(fleets(), asks(), ANY_RULES, st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_cards_does_not_matter(
    fleet: Fleet, ask: Ask, rules: Rules, random: st.DataObject
) -> None:
    shuffled = Fleet(fleet.margin)
    names = sorted(fleet.nodes, key=lambda each: each.name)
    random.shuffle(names)  # type: ignore[attr-defined]
    for each in names:
        gpus = list(each.gpus)
        random.shuffle(gpus)  # type: ignore[attr-defined]
        shuffled.set_node(msgspec.structs.replace(each, gpus=tuple(gpus)))
        for card in gpus:
            seen = fleet.observation(card.uuid)
            if seen is not None:
                shuffled.observe(card.uuid, seen)
    shuffled.adopt(fleet.ledger)

    one, other = (decide(each, ask, rules, now=NOW) for each in (fleet, shuffled))

    assert (one.placement, one.nominated, one.warnings) == (other.placement, other.nominated, other.warnings)


@given(fleets(), asks(), ANY_RULES)
def test_deciding_changes_nothing_and_repeats_itself(fleet: Fleet, ask: Ask, rules: Rules) -> None:
    generation, version = fleet.generation, fleet.ledger.version
    first, second = (decide(fleet, ask, rules, now=NOW) for _ in range(2))

    assert (first.placement, first.nominated) == (second.placement, second.nominated)
    assert (fleet.generation, fleet.ledger.version) == (generation, version)


@given(fleets(), asks())
def test_releasing_memory_is_never_handed_out(fleet: Fleet, ask: Ask) -> None:
    decision = decide(fleet, ask, Rules(), now=NOW)
    for share in () if decision.placement is None else decision.placement.gpus:
        account = fleet.account(share.uuid)
        assert share.mib + account.claimed <= account.usable - account.margin


@given(st.integers(1, 128), st.integers(1, 16), st.integers(1, 40_000))
def test_replicas_never_add_memory(replicas: int, count: int, mib: int) -> None:
    fleet = fleet_of(node("n1", *(gpu(f"GPU-{i:02}", slots=replicas) for i in range(count))))
    placed = 0
    while placed <= count * 128:
        decision = decide(fleet, one_ask(mib, pod=f"ns/{placed}"), Rules(), now=NOW)
        if decision.placement is None:
            break
        fleet.reserve(reservation_of(decision))
        placed += 1

    assert placed == count * min(replicas, 32_500 // mib)
