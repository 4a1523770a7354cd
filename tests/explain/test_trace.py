"""Trace lines: one fact each, tagged, greppable; and what changed between two looks."""

import re

from hypothesis import given

from builders import ask, claim, fleet_of, gpu, node, observation, process
from explain.worlds import ANY_RULES, wishes
from strategies import NOW, fleets
from vramline.decide.engine import decide
from vramline.explain.decision import Explanation, explain_decision
from vramline.explain.trace import changed_since, trace_lines
from vramline.model.ask import Ask, RealtimeMode, ShareSize, UnsizedSize, WholeSize
from vramline.model.claim import ClaimState
from vramline.model.fleet import Fleet
from vramline.model.rules import Rules

LINE = re.compile(
    r"\[(GPU_FILTER|GPU_FIT_CHECK|IDLE_CHECK|RESOURCE_CHECK|GPU_SELECT|GPU_ALLOCATE)\]( \w+=<[^<>]*>)+"
)


def trace(fleet: Fleet, wish: Ask, *, most_nodes: int | None = 50) -> list[str]:
    return trace_lines(fleet, decide(fleet, wish, Rules(), now=100.0), most_nodes=most_nodes)


def unwrap(text: str) -> list[str]:
    """The lines of `text`; one that begins with a dot goes on with the line before."""
    return text.strip().replace("\n.", "").splitlines()


def test_a_pod_that_waits_for_a_releasing_neighbour() -> None:
    fleet = fleet_of(
        node("n1", gpu(slots=100), advertised=100),
        claims=[claim(24_000, "ns/old", state=ClaimState.RELEASING)],
        observations={"GPU-a": observation(24_300, process(24_000, "ns/old"), process(300), at=88.0)},
    )

    assert trace(fleet, ask(16_000)) == unwrap("""
[GPU_FILTER] pod=<ns/new> node=<n1> Requested=<1 x 16000 MiB> PhysicalGPUs=<1> AdvertisedGPUs=<100>
. LedgerVersion=<1> Mode=<strict> Fits=<false> Reason=<InsufficientVram>
[GPU_FILTER] pod=<ns/new> node=<n1> gpu=<GPU-a> UsedMemory=<24300 MiB> AllocatedMemory=<24000 MiB>
. ReleasingMemory=<24000 MiB> TotalGpuMemory=<32600 MiB> Fits=<false> Reason=<InsufficientVram>
[GPU_FIT_CHECK] pod=<ns/new> node=<n1> gpu=<GPU-a> InUse=<true> EnoughResources=<false>
. AllReleasing=<true> SlotsLeft=<99> CoresLeft=<100 %> Fits=<false>
[IDLE_CHECK] pod=<ns/new> node=<n1> gpu=<GPU-a> TotalMemory=<32600 MiB> UsableMemory=<32600 MiB>
. AllocatedMemory=<24000 MiB> UnmanagedMemory=<300 MiB> Margin=<100 MiB> RequestedMemory=<16000 MiB>
. AvailableMemory=<8200 MiB> Enough=<false> Basis=<observed> ObservedAge=<12 s> Source=<GpuReport>
[RESOURCE_CHECK] pod=<ns/new> node=<n1> gpu=<GPU-a> TotalMemory=<32600 MiB> UsableMemory=<32600 MiB>
. AllocatedMemory=<24000 MiB> UnmanagedMemory=<300 MiB> Margin=<100 MiB> RequestedMemory=<16000 MiB>
. ReleasingMemory=<24000 MiB> AvailableMemory=<32200 MiB> Enough=<true>
[GPU_SELECT] pod=<ns/new> RequiredDevices=<1> FittingNodes=<0> Policy=<vramline>
[GPU_ALLOCATE] pod=<ns/new> node=<none> gpus=<[]> Requested=<1 x 16000 MiB> nominated=<true>
. NominatedNode=<n1> success=<false>
""")


def test_a_pod_that_was_placed_shows_what_was_selected() -> None:
    fleet = fleet_of(
        node("n1", gpu("GPU-a"), gpu("GPU-b", 20_000), gpu("GPU-c", 5_000)), node("n2", gpu("GPU-d"))
    )
    decision = decide(fleet, ask(8_000), Rules(mode=RealtimeMode.DISABLED), now=100.0)
    lines = trace_lines(fleet, decision)

    assert [line for line in lines if line.startswith(("[GPU_SELECT]", "[GPU_ALLOCATE]"))] == unwrap("""
[GPU_SELECT] pod=<ns/new> RequiredDevices=<1> FittingNodes=<2> Policy=<vramline>
[GPU_SELECT] pod=<ns/new> node=<n1> Score=<-11900> Selected=<true>
[GPU_SELECT] pod=<ns/new> node=<n1> gpu=<GPU-a> EnoughIdle=<true> TaskAllocatable=<true> Selected=<false>
[GPU_SELECT] pod=<ns/new> node=<n1> gpu=<GPU-b> EnoughIdle=<true> TaskAllocatable=<true> Selected=<true>
[GPU_SELECT] pod=<ns/new> node=<n1> gpu=<GPU-c> EnoughIdle=<false> TaskAllocatable=<false> Selected=<false>
[GPU_SELECT] pod=<ns/new> node=<n2> Score=<-24500> Selected=<false>
[GPU_ALLOCATE] pod=<ns/new> node=<n1> gpus=<[GPU-b]> Requested=<1 x 8000 MiB> nominated=<false>
. NominatedNode=<none> success=<true>
""")


def test_what_nobody_could_tell_is_unknown() -> None:
    lines = trace(fleet_of(node("n1", gpu())), ask(8_000))

    assert "AdvertisedGPUs=<unknown>" in lines[0]
    assert "UsedMemory=<unknown>" in lines[1]
    assert "SlotsLeft=<unlimited>" in lines[2]
    assert "UnmanagedMemory=<unknown>" in lines[3]
    assert "ObservedAge=<unknown>" in lines[3]


def test_every_way_to_ask_has_its_words() -> None:
    fleet = fleet_of(node("n1", gpu()))
    asked = [trace(fleet, ask(size))[-1] for size in (ShareSize(1, 4), WholeSize(), UnsizedSize())]

    assert [line.split("Requested=<")[1].split(">")[0] for line in asked] == [
        "1 x 1/4 of a card",
        "1 x a whole card",
        "1 x a card",
    ]


def test_the_number_of_nodes_is_bounded_and_said() -> None:
    fleet = fleet_of(*(node(f"n{i}", gpu(f"GPU-{i}", 5_000 + i)) for i in range(5)), node("n9"))
    few, every = trace(fleet, ask(8_000), most_nodes=2), trace(fleet, ask(8_000), most_nodes=None)

    assert "[GPU_FILTER] pod=<ns/new> NodesNotShown=<3>" in few
    assert [sum("PhysicalGPUs" in line for line in lines) for lines in (few, every)] == [2, 5]


@given(fleets(), wishes(), ANY_RULES)
def test_every_line_can_be_taken_apart(fleet: Fleet, wish: Ask, rules: Rules) -> None:
    lines = trace_lines(fleet, decide(fleet, wish, rules, now=NOW))

    assert [line for line in lines if not LINE.fullmatch(line)] == []


def explained(fleet: Fleet) -> Explanation:
    return explain_decision(fleet, decide(fleet, ask(8_000), Rules(), now=100.0), Rules())


def test_figures_that_changed_since_the_nodes_were_filtered_are_marked() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a"), gpu("GPU-b")), claims=[claim(8_000)])
    before = explained(fleet)
    fleet.adopt([claim(20_000, "ns/quick")])
    fleet.observe("GPU-b", observation(700, process(700)))

    assert changed_since(before.nodes, explained(fleet).nodes) == [
        "n1/GPU-a: AllocatedMemory 8000 -> 28000",
        "n1/GPU-a: AvailableMemory 24500 -> 4500",
        "n1/GPU-a: Reason none -> InsufficientVram",
        "n1/GPU-b: UnmanagedMemory unknown -> 700",
        "n1/GPU-b: AvailableMemory 32500 -> 31800",
        "n1/GPU-b: Basis books -> observed",
    ]


def test_nothing_changed_is_no_line() -> None:
    fleet = fleet_of(node("n1", gpu()))

    assert changed_since(explained(fleet).nodes, explained(fleet).nodes) == []


def test_a_card_that_only_one_of_the_decisions_saw_is_not_compared() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a")))
    before = explained(fleet)
    fleet.set_node(node("n2", gpu("GPU-b")))

    assert changed_since(before.nodes, explained(fleet).nodes) == []


def test_the_mode_is_part_of_the_trace() -> None:
    fleet = fleet_of(node("n1", gpu()))
    decision = decide(fleet, ask(), Rules(mode=RealtimeMode.WARNING), now=100.0)

    assert "Mode=<warning>" in trace_lines(fleet, decision)[0]
