"""All figures of one state of the code, in one table: every benchmark in a size that takes minutes in all."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vramline.bench.agent import AgentRun, measure_agent
from vramline.bench.decide import measure_decide
from vramline.bench.estimate import compare_runs
from vramline.bench.extender import measure_extender
from vramline.bench.inference import measure_inference
from vramline.bench.manifests import ClusterShape
from vramline.bench.openb import LogLine, OpenbReport, replay, replay_in_turns
from vramline.bench.openb_check import check_log, check_report
from vramline.bench.openb_trace import Trace, copy_nodes, read_trace
from vramline.bench.population import PopulationShape
from vramline.bench.recovery import measure_recovery
from vramline.bench.simulate import measure_simulate
from vramline.bench.vram import measure_vram
from vramline.bench.vram_rules import RuleName
from vramline.bench.vram_world import VramShape
from vramline.errors import RequestError, TransientError
from vramline.model.ask import PolicyName

__all__ = ["BenchTable", "Figure", "TableRun", "measure_everything"]

_DECISIONS, _CALLS = 2_000, 200
"""As many as `bench decide` and `bench extender` make by themselves: among fewer, templates that come for the
first time would weigh more."""
_COPIES = 8
"""The trace is replayed with so many of every node, too."""

Progress = Callable[[int, int], None]


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One row."""

    bench: str
    what: str
    value: str
    goal: str = ""
    """What is wanted on one core of a quiet machine; empty: nothing is."""
    is_wrong: bool = False
    """Whether this must never be, on any machine: a broken rule, not a slow run."""


class BenchTable(msgspec.Struct, frozen=True, kw_only=True):
    """All rows."""

    commit: str
    figures: list[Figure]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRun:
    """Where things are, and how large to measure."""

    commit: str
    data: Path | None = None
    """Folder of the public traces and measured runs; None: their rows say that it is missing."""
    library: Path | None = None
    """NVML library for the agent; None: the row says that it is missing."""
    nodes: int = 5_000
    """Of the largest cluster; the others are smaller in proportion."""


def measure_everything(run: TableRun, progress: Progress) -> BenchTable:
    """Run one benchmark after the other. What cannot be measured here says why, in its row."""
    benches = {
        "decide": _decide,
        "openb": _openb,
        "extender": _extender,
        "recovery": _recovery,
        "vram": _vram,
        "simulate": _simulate,
        "estimate": _estimate,
        "inference": _inference,
        "agent": _agent,
    }
    figures: list[Figure] = []
    for number, (name, measure) in enumerate(benches.items()):
        progress(number, len(benches))
        try:
            figures += measure(run)
        except (RequestError, TransientError) as error:
            figures.append(Figure(bench=name, what="not measured", value=str(error)))
    progress(len(benches), len(benches))
    return BenchTable(commit=run.commit, figures=figures)


def _say_nothing(*_: object) -> None:
    """One bar for all is enough."""


def _decide(run: TableRun) -> Iterator[Figure]:
    sizes = sorted({max(1, run.nodes // 5), run.nodes})
    for row in measure_decide(sizes, gpus=8, pods=_DECISIONS, seed=42, report=_say_nothing).sizes:
        what = f"one decision at {row.nodes:,} nodes, CPU"
        yield Figure(bench="decide", what=what, value=f"{row.cpu_us:,.0f} µs", goal="≤ 1,000 µs")
        yield Figure(
            bench="decide", what="  99 % of them within", value=f"{row.p99_us:,.0f} µs", goal="≤ 5 ms"
        )


def _openb(run: TableRun) -> Iterator[Figure]:
    folder = _data(run, "openb")
    trace = read_trace(
        folder / "openb_node_list_gpu_node.csv",
        folder / "openb_pod_list_default.csv",
        folder / "arrival_orders.npz",
        variant="default",
        seed=42,
    )
    lines: list[LogLine] = []
    done = replay_in_turns(trace, variant="default", seed=42, policy=PolicyName.VRAMLINE, tell=lines.append)
    for level, goal in (("100", "≥ 96.0 %"), ("130", "≥ 96.1 %")):
        part = done.alloc[level]
        value = "–" if part is None else f"{part:.2f} %"
        yield Figure(
            bench="openb", what=f"allocated at {level} % demand, default, seed 42", value=value, goal=goal
        )
    yield from _speed_of_openb(done)
    yield Figure(bench="openb", what="  tracing adds", value=f"{done.tracing_percent:.0f} %", goal="≤ 20 %")
    yield _counted_again(trace, lines, done)
    larger, lines = copy_nodes(trace, _COPIES), []
    done = replay(larger, variant="default", seed=42, policy=PolicyName.VRAMLINE, tell=lines.append)
    yield from _speed_of_openb(done)
    yield _counted_again(larger, lines, done)


def _counted_again(trace: Trace, lines: list[LogLine], done: OpenbReport) -> Figure:
    wrong = len(check_log(trace, lines)) + len(check_report(trace, lines, done))
    what = "  rules broken and figures wrong, by its log"
    return Figure(bench="openb", what=what, value=str(wrong), goal="0", is_wrong=wrong > 0)


def _speed_of_openb(done: OpenbReport) -> Iterator[Figure]:
    what = f"decisions a second of CPU at {done.nodes:,} nodes, traced"
    yield Figure(bench="openb", what=what, value=f"{done.per_s:,.0f}", goal="≥ 1,000")
    yield Figure(bench="openb", what="  99 % of them within", value=f"{done.p99_us:,.0f} µs", goal="≤ 5 ms")


def _extender(run: TableRun) -> Iterator[Figure]:
    for nodes in sorted({max(1, run.nodes // 5), run.nodes}):
        shape = PopulationShape(nodes=nodes, gpus=8, pods=4 * nodes, waiting=_CALLS)
        done = measure_extender(shape, progress=_say_nothing)
        for name, call, over in (
            ("filter", done.filter, done.filter_over_floor),
            ("prioritize", done.prioritize, done.prioritize_over_floor),
        ):
            what = f"{name} at {nodes:,} nodes, CPU"
            yield Figure(bench="extender", what=what, value=f"{call.cpu_ms:.2f} ms", goal="≤ 4 ms")
            yield Figure(bench="extender", what="  over the floor", value=f"{over:.1f} ×", goal="≤ 6 ×")
        yield Figure(bench="extender", what="  memory", value=f"{done.rss_mib:,.0f} MiB", goal="≤ 381 MiB")


def _recovery(run: TableRun) -> Iterator[Figure]:
    shape = PopulationShape(nodes=run.nodes, gpus=8, pods=4 * run.nodes)
    done = measure_recovery(shape, starts=1, progress=_say_nothing)
    what = f"start to first right decision at {run.nodes:,} nodes"
    yield Figure(bench="recovery", what=what, value=f"{done.right_s:.1f} s", goal="≤ 3 s")
    yield Figure(bench="recovery", what="  CPU of that", value=f"{done.cpu_s:.1f} s")
    what = "  wrong decisions before"
    yield Figure(bench="recovery", what=what, value=str(done.wrong), goal="0", is_wrong=done.wrong > 0)
    yield Figure(bench="recovery", what="  peak memory", value=f"{done.peak_rss_mib:,.0f} MiB")
    beside = f"{done.beside_peak_rss_mib:,.0f} MiB"
    yield Figure(bench="recovery", what="  peak memory of the process beside it", value=beside)


def _vram(run: TableRun) -> Iterator[Figure]:
    shape = VramShape(nodes=max(2, run.nodes // 250), pods=max(100, run.nodes * 3 // 10))
    for each in measure_vram(shape, progress=_say_nothing).rules:
        ours = each.rule is RuleName.VRAMLINE
        value = f"{each.over_commits:,} over-commits, {each.died:,} died, {each.allocated_percent:.1f} %"
        yield Figure(
            bench="vram",
            what=f"{each.rule}, {shape.pods:,} pods",
            value=value,
            goal="0 over-commits" if ours else "",
            is_wrong=ours and each.over_commits > 0,
        )


def _simulate(run: TableRun) -> Iterator[Figure]:
    nodes = max(1, run.nodes // 5)
    done = measure_simulate(ClusterShape(nodes=nodes, gpus=8, pods=2 * nodes))
    what = f"a pod, with its explanation, at {nodes:,} nodes, CPU"
    yield Figure(bench="simulate", what=what, value=f"{done.pod_us:,.0f} µs")


def _estimate(run: TableRun) -> Iterator[Figure]:
    done = compare_runs(_data(run, "models") / "vllm_h100_measured.csv", None)
    for each in done.errors:
        yield Figure(bench="estimate", what=f"median error of {each.part}", value=f"{each.median:.2%}")
    inside = f"{done.inside} of {len(done.runs)}"
    yield Figure(bench="estimate", what="runs between low and high", value=inside)


def _inference(run: TableRun) -> Iterator[Figure]:
    nodes = max(1, run.nodes // 5)
    done = measure_inference(ClusterShape(nodes=nodes, gpus=8, pods=2 * nodes, running=1.0), rounds=20)
    for each in done.questions:
        yield Figure(
            bench="inference", what=f"{each.question} at {nodes:,} nodes, CPU", value=f"{each.p50_ms:.2f} ms"
        )


def _agent(run: TableRun) -> Iterator[Figure]:
    if run.library is None:
        raise RequestError(subject="agent", problem="needs an NVML library", accepted="--library PATH")
    done = measure_agent(AgentRun(library=run.library, seconds=10))
    what = f"{done.gpus} cards, a look a second, CPU"
    yield Figure(bench="agent", what=what, value=f"{done.cpu_percent:.2f} % of a core", goal="≤ 1 %")
    yield Figure(bench="agent", what="  memory", value=f"{done.rss_mib:.0f} MiB")


def _data(run: TableRun, name: str) -> Path:
    if run.data is None:
        raise RequestError(subject=name, problem="needs the public data", accepted="VRAMLINE_DATA")
    return run.data / name
