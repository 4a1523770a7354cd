"""Who counts a log of the trace again finds every lie in it, and nothing in honest ones."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramline.bench.openb import LogLine, OpenbReport, replay
from vramline.bench.openb_check import check_log, check_report
from vramline.bench.openb_trace import Trace, TraceNode, TracePod
from vramline.model.ask import PolicyName

MODELS = ("T4", "G2", "V100M16")
KNOWN = 40
"""So many pods are enough for policies that think ahead to do so."""
Free = dict[str, tuple[list[int], list[int]]]
"""By node: what is left of each card; of CPU and memory."""


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """A few nodes, too small for all the pods."""
    nodes = [
        TraceNode(
            f"n{number}",
            draw(st.sampled_from((4_000, 8_000))),
            draw(st.sampled_from((600, 2_000))),
            draw(st.integers(1, 4)),
            draw(st.sampled_from(MODELS)),
            rank,
        )
        for number, rank in enumerate(draw(st.permutations(range(draw(st.integers(1, 4))))))
    ]
    kinds = draw(st.lists(some_pods(), min_size=1, max_size=8))
    pods = [replace(kinds[number % len(kinds)], name=f"p{number:02d}") for number in range(KNOWN)]
    order = draw(st.lists(st.integers(0, len(pods) - 1), min_size=1, max_size=14))
    return Trace(tuple(nodes), tuple(pods), tuple(order))


@st.composite
def some_pods(draw: st.DrawFn) -> TracePod:
    """A pod: CPU alone, a share, a card, or several."""
    gpus = draw(st.sampled_from((0, 1, 1, 1, 2, 4)))
    milli = draw(st.sampled_from((190, 470, 500, 810, 1_000))) if gpus == 1 else 1_000 * bool(gpus)
    models = draw(st.sets(st.sampled_from(MODELS), max_size=2)) if gpus else ()
    cpu = draw(st.sampled_from((500, 1_500, 4_000)))
    memory = draw(st.sampled_from((50, 300)))
    return TracePod("", cpu, memory, gpus, milli, tuple(sorted(name.lower() for name in models)))


def is_honest(trace: Trace, log: Sequence[LogLine]) -> bool:
    """Judge a log the slow way: one pod after the other, one card after the other."""
    free: Free = {n.name: ([1_000] * n.gpus, [n.cpu_milli, n.memory_mib]) for n in trace.nodes}
    models = {node.name: node.model.lower() for node in trace.nodes}
    if [(line.i, line.pod) for line in log] != [
        (i, trace.pods[place].name) for i, place in enumerate(trace.order)
    ]:
        return False
    for line, place in zip(log, trace.order, strict=True):
        pod = trace.pods[place]
        able = [name for name in free if could_take(pod, free[name], models[name])]
        if line.node is None:
            if able or line.gpus:
                return False
            continue
        if line.node not in able or sorted(set(line.gpus)) != sorted(line.gpus):
            return False
        cards, host = free[line.node]
        if len(line.gpus) != pod.gpus or not all(card in range(len(cards)) for card in line.gpus):
            return False
        for card in line.gpus:
            cards[card] -= pod.milli
        host[0] -= pod.cpu_milli
        host[1] -= pod.memory_mib
        if min([*cards, *host]) < 0:
            return False
    return True


def could_take(pod: TracePod, free: tuple[list[int], list[int]], model: str) -> bool:
    """Whether a node has what a pod wants."""
    cards, (cpu, memory) = free
    enough = sum(card >= pod.milli for card in cards) >= pod.gpus
    return (
        enough and cpu >= pod.cpu_milli and memory >= pod.memory_mib and (model in (pod.models or (model,)))
    )


def log_of(trace: Trace, policy: PolicyName) -> list[LogLine]:
    lines: list[LogLine] = []
    replay(trace, variant="own", seed=1, policy=policy, trace_decisions=False, tell=lines.append)
    return lines


@st.composite
def forgeries(draw: st.DrawFn, trace: Trace, log: list[LogLine]) -> list[LogLine]:
    """Change one thing in a log."""
    place = draw(st.integers(0, len(log) - 1))
    line = log[place]
    nodes = [node.name for node in trace.nodes]
    forged = draw(
        st.sampled_from(
            (
                [msgspec.structs.replace(line, node=draw(st.sampled_from([*nodes, "no such node"])))],
                [
                    msgspec.structs.replace(
                        line, gpus=draw(st.lists(st.integers(-1, 4), max_size=4)), node=line.node
                    )
                ],
                [msgspec.structs.replace(line, node=None, gpus=[])],
                [msgspec.structs.replace(line, node=nodes[0], gpus=[0])],
                [msgspec.structs.replace(line, pod="somebody else")],
                [],
                [line, line],
            )
        )
    )
    return [*log[:place], *forged, *log[place + 1 :]]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_forged_log_is_found_out_and_an_honest_one_is_not(data: st.DataObject) -> None:
    trace = data.draw(traces())
    log = log_of(trace, data.draw(st.sampled_from((PolicyName.BESTFIT, PolicyName.VRAMLINE))))
    assert check_log(trace, log) == []
    assert is_honest(trace, log)

    forged = data.draw(forgeries(trace, log))

    assert (check_log(trace, forged) == []) == is_honest(trace, forged)


@settings(max_examples=40, deadline=None)
@given(traces(), st.integers(0, 14), st.sampled_from(list(PolicyName)))
def test_nobody_looks_at_pods_to_come_or_moves_a_pod_again(
    trace: Trace, cut: int, policy: PolicyName
) -> None:
    """What became of the first pods does not depend on those after them."""
    shorter = Trace(trace.nodes, trace.pods, trace.order[:cut] or trace.order[:1])

    assert log_of(shorter, policy) == log_of(trace, policy)[: len(shorter.order)]


REPORT_TRACE = Trace(
    (TraceNode("a", 9_000, 900, 1, "T4", 0),),
    (
        TracePod("share", 1, 1, 1, 800, ()),
        TracePod("whole", 1, 1, 1, 1_000, ()),
        TracePod("cpu", 1, 1, 0, 0, ()),
    ),
    (0, 0, 2),
)


@pytest.mark.parametrize(
    ("field", "told", "what"),
    [
        pytest.param("alloc", {"80": 80.0}, None, id="right"),
        pytest.param("alloc", {"80": 80.01}, "80.01 % allocated at 80 % demand, but 80.0", id="too much"),
        pytest.param("alloc", {"80": None}, "None % allocated at 80 % demand, but 80.0", id="untold"),
        pytest.param("alloc", {"100": 80.0}, "80.0 % allocated at 100 % demand, but None", id="invented"),
        pytest.param("rejected", {"share": 0}, "0 pods of kind share dropped, but 1", id="dropped"),
        pytest.param("rejected", {"cpu": 1}, "1 pods of kind cpu dropped, but 0", id="not dropped"),
        pytest.param("decisions", 2, "2 decisions, but 3", id="decisions"),
    ],
)
def test_a_figure_that_the_log_does_not_bear_out_is_found(field: str, told: object, what: str | None) -> None:
    lines: list[LogLine] = []
    report = replay(REPORT_TRACE, variant="own", seed=1, policy=PolicyName.FGD, tell=lines.append)
    assert check_report(REPORT_TRACE, lines, report) == []

    changed: OpenbReport = msgspec.structs.replace(report, **{field: told})

    found = check_report(REPORT_TRACE, lines, changed)
    assert [what in each for each in found] == [True] if what else found == []
