"""The public trace: published figures come out of our engine, and every log is counted again."""

import os
from pathlib import Path

import pytest

from vramline.bench.openb import LogLine, replay, replay_in_turns
from vramline.bench.openb_check import check_log
from vramline.bench.openb_trace import Trace, TraceNode, TracePod, copy_nodes, read_trace
from vramline.model.ask import PolicyName

NODES = (
    TraceNode("a", 8_000, 10_000, 2, "T4", 1),
    TraceNode("b", 4_000, 10_000, 1, "P100", 0),
)
PODS = (
    TracePod("share", 1_000, 100, 1, 600, ()),
    TracePod("whole", 1_000, 100, 1, 1_000, ()),
    TracePod("t4", 1_000, 100, 1, 300, ("t4",)),
    TracePod("cpu", 3_000, 100, 0, 0, ()),
    TracePod("two", 1_000, 100, 2, 1_000, ()),
)
TRACE = Trace(NODES, PODS, (0, 1, 2, 3, 4))


def trace_of(variant: str, seed: int) -> Trace:
    data = os.environ.get("VRAMLINE_DATA")
    if not data:
        pytest.skip("VRAMLINE_DATA is not set: the folder of the public trace")
    folder = Path(data) / "openb"
    pods = folder / f"openb_pod_list_{variant}.csv"
    nodes, orders = folder / "openb_node_list_gpu_node.csv", folder / "arrival_orders.npz"
    return read_trace(nodes, pods, orders, variant=variant, seed=seed)


@pytest.mark.parametrize("policy", list(PolicyName))
def test_every_policy_keeps_the_rules_of_the_trace(policy: PolicyName) -> None:
    lines: list[LogLine] = []

    report = replay(TRACE, variant="own", seed=1, policy=policy, tell=lines.append)

    assert check_log(TRACE, lines) == []
    assert report.rejected["multi"] == 1
    assert [line.node is None for line in lines] == [False, False, False, False, True]


def test_copies_of_nodes_take_the_same_pods_by_the_same_rules() -> None:
    larger = copy_nodes(TRACE, 3)
    lines: list[LogLine] = []

    report = replay(larger, variant="own", seed=1, policy=PolicyName.VRAMLINE, tell=lines.append)

    assert sorted((node.rank, node.name) for node in larger.nodes) == [
        *((0, "b-0"), (1, "b-1"), (2, "b-2"), (3, "a-0"), (4, "a-1"), (5, "a-2"))
    ]
    assert check_log(larger, lines) == []
    assert (report.nodes, sum(report.rejected.values())) == (6, 0)


def test_what_tracing_adds_is_told_beside_the_same_placements() -> None:
    alone, beside = list[LogLine](), list[LogLine]()
    replay(TRACE, variant="own", seed=1, policy=PolicyName.VRAMLINE, tell=alone.append)

    report = replay_in_turns(TRACE, variant="own", seed=1, policy=PolicyName.VRAMLINE, tell=beside.append)

    assert beside == alone
    assert (report.decisions, report.rejected["multi"]) == (5, 1)
    assert report.tracing_percent is not None


@pytest.mark.parametrize(
    ("policy", "at_100", "at_130"),
    [
        pytest.param(PolicyName.FGD, 95.14, 95.29, id="fgd"),
        pytest.param(PolicyName.BESTFIT, 92.94, 93.13, id="bestfit"),
        pytest.param(PolicyName.PACKING, 91.37, 91.57, id="packing"),
    ],
)
def test_published_figures_come_out(policy: PolicyName, at_100: float, at_130: float) -> None:
    report = replay(trace_of("default", 42), variant="default", seed=42, policy=policy)

    assert (report.alloc["100"], report.alloc["130"]) == (at_100, at_130)


def test_our_policy_fills_more_than_the_best_published_one_and_keeps_the_rules() -> None:
    trace = trace_of("default", 42)
    lines: list[LogLine] = []

    report = replay(trace, variant="default", seed=42, policy=PolicyName.VRAMLINE, tell=lines.append)

    assert check_log(trace, lines) == []
    assert (report.alloc["100"] or 0) >= 96.0
    assert (report.alloc["130"] or 0) >= 96.1
    assert sum(report.rejected.values()) <= 2_532  # as many as fgd


@pytest.mark.parametrize(
    ("place", "wrong", "what"),
    [
        pytest.param(
            0, LogLine(0, "share", None, []), "was dropped, but 2 nodes could take it", id="dropped"
        ),
        pytest.param(0, LogLine(0, "share", "c", [0]), "is on c, which is no node", id="nowhere"),
        pytest.param(2, LogLine(2, "t4", "b", [0]), "is on b, which cannot take it", id="wrong model"),
        pytest.param(
            1, LogLine(1, "whole", "a", [0]), "has cards [0] of a, where [400, 1000]", id="card is taken"
        ),
        pytest.param(1, LogLine(1, "whole", "a", [1, 1]), "has cards [1, 1] of a", id="a card twice"),
        pytest.param(1, LogLine(1, "whole", "a", []), "has cards [] of a", id="no card"),
        pytest.param(1, LogLine(1, "whole", "b", [-1]), "has cards [-1] of b", id="a card from behind"),
        pytest.param(3, LogLine(3, "cpu", "b", [0]), "has cards [0] of b", id="a card too many"),
        pytest.param(
            4, LogLine(4, "two", None, [0]), "was dropped, but has cards [0]", id="dropped with card"
        ),
        pytest.param(4, LogLine(4, "two", "a", [0, 1]), "is on a, which cannot take it", id="over-committed"),
        pytest.param(3, LogLine(3, "share", "a", []), "is not in its place in the log", id="another pod"),
    ],
)
def test_a_log_that_breaks_a_rule_is_found_out(place: int, wrong: LogLine, what: str) -> None:
    lines = [
        LogLine(0, "share", "a", [0]),
        LogLine(1, "whole", "a", [1]),
        LogLine(2, "t4", "a", [0]),
        LogLine(3, "cpu", "b", []),
        LogLine(4, "two", None, []),
    ]
    assert check_log(TRACE, lines) == []

    lines[place] = wrong

    found = check_log(TRACE, lines)
    assert [each.i for each in found][:1] == [place]
    assert what in found[0].what
