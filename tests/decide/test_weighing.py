"""Policies that think ahead: what they spare, and that remembering never changes an answer."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import ask, claim, fleet_of, gpu, node
from vramline.decide.engine import decide
from vramline.decide.reserve import reservation_of
from vramline.model.ask import MibSize, PolicyName, WholeSize
from vramline.model.fleet import Fleet
from vramline.model.host import HostColumns
from vramline.model.mix import AskClass, Mix
from vramline.model.node import HostRoom, Node
from vramline.model.rules import Rules
from vramline.units import Mib

NOW = 1_000.0
AHEAD = (PolicyName.VRAMLINE, PolicyName.FGD)


def usual(counts: Mapping[int, int], *, cpu_milli: int = 0) -> Mix:
    """A mix of asks for one card, by MiB."""
    return Mix(
        {AskClass(gpus=1, size=MibSize(Mib(mib)), cpu_milli=cpu_milli): n for mib, n in counts.items()}
    )


def place(fleet: Fleet, mib: int, policy: PolicyName = PolicyName.VRAMLINE, **fields: Any) -> str | None:
    decision = decide(fleet, ask(mib, **fields), Rules(policy=policy), now=NOW)
    return None if decision.placement is None else decision.placement.gpus[0].uuid


def with_cpu(fleet: Fleet, *nodes: Node) -> Fleet:
    fleet.hosts = HostColumns()
    for each in nodes:
        fleet.hosts.set_node(fleet.node_numbers([each.name])[0], each)
    return fleet


@pytest.mark.parametrize("policy", AHEAD)
def test_an_ask_goes_where_what_it_leaves_is_of_use_to_the_usual_asks(policy: PolicyName) -> None:
    """Halves are usual: a tenth goes beside another tenth, not onto the card that a half could still use."""
    fleet = fleet_of(node("n1", gpu("GPU-a", 10_100)), node("n2", gpu("GPU-b", 10_100)))
    fleet.adopt([claim(5_000, "ns/half", gpu="GPU-a"), claim(1_000, "ns/tenth", gpu="GPU-b")])
    fleet.mix = usual({5_000: 90, 1_000: 10})

    assert place(fleet, 1_000, policy) == "GPU-b"


def test_a_residual_is_cut_where_least_of_its_worth_is_lost() -> None:
    """Asks of 3,000 fill the card with 3,000 left, although rank would take the empty one."""
    fleet = fleet_of(node("n1", gpu("GPU-a", 10_100)), node("n2", gpu("GPU-b", 10_100)))
    fleet.adopt([claim(7_000, "ns/other", gpu="GPU-b")])
    fleet.mix = usual({7_000: 50, 3_000: 50})

    assert place(fleet, 3_000) == "GPU-b"


def test_cards_that_others_cannot_do_without_are_spared() -> None:
    fleet = fleet_of(
        node("n1", gpu("GPU-a", 16_100, model="NVIDIA T4")),
        node("n2", gpu("GPU-b", 16_100, model="NVIDIA L4")),
    )
    fleet.mix = Mix(
        {
            AskClass(gpus=1, size=MibSize(Mib(8_000)), use_models=("t4",)): 50,
            AskClass(gpus=1, size=MibSize(Mib(8_000))): 50,
        }
    )

    assert place(fleet, 8_000) == "GPU-b"
    assert place(fleet, 8_000, use_models=("t4",)) == "GPU-a"


def test_memory_without_cpu_counts_as_spoilt_so_what_needs_much_cpu_goes_where_there_is_much() -> None:
    lean = node("n1", gpu("GPU-a", 8_100), gpu("GPU-c", 8_100), host=HostRoom(cpu_milli=8_000))
    rich = node("n2", gpu("GPU-b", 8_100), gpu("GPU-d", 8_100), host=HostRoom(cpu_milli=64_000))
    fleet = with_cpu(fleet_of(lean, rich), lean, rich)
    fleet.mix = usual({8_000: 100}, cpu_milli=4_000)

    assert place(fleet, 8_000, cpu_milli=6_000) == "GPU-b"


def test_what_needs_little_cpu_leaves_cards_with_much_cpu_to_what_needs_it() -> None:
    rich = node("n1", *(gpu(f"GPU-1{i}", 8_100) for i in range(2)), host=HostRoom(cpu_milli=64_000))
    lean = node("n2", *(gpu(f"GPU-2{i}", 8_100) for i in range(4)), host=HostRoom(cpu_milli=16_000))
    fleet = with_cpu(fleet_of(rich, lean), rich, lean)
    fleet.mix = Mix(
        {AskClass(gpus=1, size=MibSize(Mib(8_000)), cpu_milli=milli): 50 for milli in (1_000, 8_000)}
    )

    assert place(fleet, 8_000, cpu_milli=1_000) == "GPU-20"
    assert place(fleet, 8_000, cpu_milli=8_000) == "GPU-10"


def test_cpu_is_left_in_pieces_that_pods_without_gpus_can_use() -> None:
    """Both cards would do; on the first node the CPU that stays is too little for the usual pod."""
    exact = node("n1", gpu("GPU-a", 8_100), host=HostRoom(cpu_milli=8_000))
    ample = node("n2", gpu("GPU-b", 8_100), host=HostRoom(cpu_milli=12_000))
    fleet = with_cpu(fleet_of(exact, ample), exact, ample)
    fleet.mix = Mix(
        {AskClass(gpus=1, size=MibSize(Mib(8_000)), cpu_milli=4_000): 50, AskClass(cpu_milli=8_000): 50}
    )

    assert place(fleet, 8_000, cpu_milli=4_000) == "GPU-b"


@pytest.mark.parametrize(
    ("policy", "taken"),
    [
        pytest.param(PolicyName.VRAMLINE, "GPU-21", id="vramline"),
        pytest.param(PolicyName.FGD, "GPU-10", id="fgd: typical asks alone, as published"),
    ],
)
def test_asks_for_many_cards_count_however_seldom_they_come(policy: PolicyName, taken: str) -> None:
    fleet = fleet_of(*(node(f"n{n}", *(gpu(f"GPU-{n}{i}", 10_100) for i in range(4))) for n in (1, 2)))
    fleet.adopt([claim(10_000, "ns/first", gpu="GPU-20")])
    fleet.mix = Mix({AskClass(gpus=1, size=WholeSize()): 97, AskClass(gpus=4, size=WholeSize()): 3})

    decision = decide(fleet, ask(WholeSize()), Rules(policy=policy), now=NOW)

    assert decision.placement is not None
    assert decision.placement.gpus[0].uuid == taken


@pytest.mark.parametrize("policy", AHEAD)
def test_several_cards_are_taken_on_the_node_that_loses_least(policy: PolicyName) -> None:
    fleet = fleet_of(
        node("n1", *(gpu(f"GPU-1{i}", 10_100) for i in range(4))),
        node("n2", *(gpu(f"GPU-2{i}", 10_100) for i in range(2))),
    )
    fleet.mix = Mix({AskClass(gpus=4, size=WholeSize()): 50, AskClass(gpus=2, size=WholeSize()): 50})

    decision = decide(fleet, ask(WholeSize(), gpus=2), Rules(policy=policy), now=NOW)

    assert decision.placement is not None
    assert decision.placement.node == "n2"


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[int, int, bool]]:
    """Pods one after the other: MiB, number of cards, and whether an earlier pod leaves before."""
    sizes = st.sampled_from([1_000, 2_500, 5_000, 10_000])
    return draw(
        st.lists(st.tuples(sizes, st.sampled_from([1, 1, 2]), st.booleans()), min_size=5, max_size=40)
    )


@given(lives(), st.sampled_from(AHEAD))
@settings(max_examples=40, deadline=None)
def test_what_is_remembered_never_changes_a_decision(
    life: list[tuple[int, int, bool]], policy: PolicyName
) -> None:
    fleet = fleet_of(
        *(node(f"n{n}", *(gpu(f"GPU-{n}{i}", 10_100 + n % 2 * 6_000) for i in range(3))) for n in range(5))
    )
    fleet.mix = usual({1_000: 20, 2_500: 20, 5_000: 30, 10_000: 10})
    here: list[str] = []
    for number, (mib, gpus, leaves) in enumerate(life):
        if leaves and here:
            fleet.remove_claims(here.pop(0))
        wish = ask(mib, gpus=gpus, pod=f"ns/p{number}")
        decision = decide(fleet, wish, Rules(policy=policy), now=NOW)
        fresh = decide(fleet.copy(), wish, Rules(policy=policy), now=NOW)
        assert decision.placement == fresh.placement
        assert np.array_equal(decision.scores, fresh.scores)
        if decision.placement is not None:
            fleet.reserve(reservation_of(decision))
            here.append(wish.pod_uid)
