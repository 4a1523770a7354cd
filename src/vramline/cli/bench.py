"""`vramline bench`: figures about the product's own code."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from vramline.bench.agent import AgentFigures, AgentRun, measure_agent
from vramline.bench.decide import DecideFigures, DecideReport, measure_decide
from vramline.bench.estimate import EstimateReport, compare_runs
from vramline.bench.manifests import ClusterShape
from vramline.bench.openb import LogLine, OpenbReport, replay, replay_in_turns, write_lines
from vramline.bench.openb_check import check_log, check_report
from vramline.bench.openb_trace import Trace, copy_nodes, read_trace
from vramline.bench.simulate import SimulateFigures, measure_simulate
from vramline.cli.apps import examples, new_app
from vramline.cli.bench_all import EXAMPLES as ALL_EXAMPLES
from vramline.cli.bench_all import everything
from vramline.cli.bench_inference import EXAMPLES as INFERENCE_EXAMPLES
from vramline.cli.bench_inference import inference
from vramline.cli.bench_service import add_service_benches
from vramline.cli.bench_vram import EXAMPLES as VRAM_EXAMPLES
from vramline.cli.bench_vram import vram
from vramline.cli.output import OutputFormat, OutputOption, print_data, print_table
from vramline.cli.progress import Progress
from vramline.cli.sizes import MOST_GPUS, MOST_NODES, MOST_PODS, read_sizes
from vramline.errors import RequestError
from vramline.model.ask import PolicyName

__all__ = ["app"]

_MOST_COPIES = 100

app = new_app()
app.command("all", epilog=ALL_EXAMPLES)(everything)
app.command(epilog=INFERENCE_EXAMPLES)(inference)
app.command(epilog=VRAM_EXAMPLES)(vram)


def _trace_option(what: str, name: str) -> Any:  # noqa: ANN401 — typer's own type
    return typer.Option(
        metavar="FILE", help=f"{what}  [default: openb/{name} in $VRAMLINE_DATA]", show_default=False
    )


@app.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    """Measure the product's own code."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(
    epilog=examples(
        "vramline bench decide", "vramline bench decide --nodes 100,1000,5000 --gpus 8 --pods 2000 -o json"
    )
)
def decide(
    *,
    nodes: Annotated[str, typer.Option(help="Sizes of fleet, a comma list.")] = "1000,5000",
    gpus: Annotated[int, typer.Option(help="Cards on each node.", min=1, max=MOST_GPUS)] = 8,
    pods: Annotated[int, typer.Option(help="Decisions at each size.", min=1, max=MOST_PODS)] = 2_000,
    seed: Annotated[int, typer.Option(help="Seed of the stream of pods.")] = 42,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """CPU time of one decision (decide and reserve) at each size, and how it grows."""
    loud = output is OutputFormat.TABLE
    report = measure_decide(
        read_sizes(nodes, subject="bench decide"),
        gpus=gpus,
        pods=pods,
        seed=seed,
        report=_tell if loud else _say_nothing,
    )
    print_data(report, output, table=lambda: _print_report(report))


@app.command(
    epilog=examples("vramline bench simulate", "vramline bench simulate --nodes 5000 --pods 50000 -o json")
)
def simulate(
    *,
    nodes: Annotated[int, typer.Option(help="How many nodes.", min=1, max=MOST_NODES)] = 1_000,
    gpus: Annotated[int, typer.Option(help="Cards on each node.", min=1, max=MOST_GPUS)] = 8,
    pods: Annotated[int, typer.Option(help="How many pods.", min=1, max=MOST_PODS)] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the cluster.")] = 1,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """CPU time of `vramline simulate` on a whole cluster, from JSON to the fate of every pod."""
    done = measure_simulate(ClusterShape(nodes=nodes, gpus=gpus, pods=pods, seed=seed))
    print_data(done, output, table=lambda: _print_simulation(done))


@app.command(
    epilog=examples(
        "vramline bench estimate --measured vllm_h100_measured.csv",
        "VRAMLINE_DATA=data vramline bench estimate -o json",
    )
)
def estimate(
    *,
    measured: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="Measured runs.  [default: models/vllm_h100_measured.csv in $VRAMLINE_DATA]",
            show_default=False,
        ),
    ] = None,
    configs: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Configs of further models: `Qwen--Qwen3-8B.json` is that of Qwen/Qwen3-8B.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Errors of `vramline estimate` on measured runs of vLLM, part by part."""
    report = compare_runs(_measured_file(measured), configs)
    print_data(report, output, table=lambda: _print_errors(report))


@app.command(
    epilog=examples(
        "vramline bench agent --library /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
        "vramline bench agent --library ./libnvidia-ml.so.1 --kubeconfig ~/.kube/config --node gpu-7 -o json",
    )
)
def agent(
    *,
    library: Annotated[Path, typer.Option(metavar="PATH", help="NVML library whose cards are watched.")],
    seconds: Annotated[int, typer.Option(help="How long to measure.", min=1, max=3_600)] = 30,
    interval: Annotated[str, typer.Option(metavar="DURATION", help="From one look to the next.")] = "1s",
    kubeconfig: Annotated[Path | None, typer.Option(help="Cluster to report to.", show_default=False)] = None,
    node: Annotated[str, typer.Option(metavar="NAME", help="Node to report as.")] = "bench",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """CPU time and memory of a running `vramline agent` that streams every sample."""
    figures = measure_agent(
        AgentRun(library=library, seconds=seconds, interval=interval, kubeconfig=kubeconfig, node=node)
    )
    print_data(figures, output, table=lambda: _print_agent(figures))


def _print_agent(figures: AgentFigures) -> None:
    columns = ["gpus", "seconds", "samples", "cpu", "rss", "peak rss", "threads", "longest gap"]
    row = (
        str(figures.gpus),
        f"{figures.seconds:g}",
        str(figures.samples),
        f"{figures.cpu_percent:.2f} %",
        f"{figures.rss_mib:.1f} MiB",
        f"{figures.peak_rss_mib:.1f} MiB",
        str(figures.threads),
        f"{figures.longest_gap_s:.2f} s",
    )
    print_table(columns, [row], numbers=columns)


@app.command(
    epilog=examples(
        "VRAMLINE_DATA=data vramline bench openb",
        "vramline bench openb --copies 8 --no-trace",
        "vramline bench openb --tracing-cost",
        "vramline bench openb --nodes nodes.csv --pods pods.csv --orders orders.npz --policy fgd -o json",
    )
)
def openb(  # noqa: PLR0913 — one parameter an option
    *,
    nodes: Annotated[
        Path | None, _trace_option("Nodes of the trace.", "openb_node_list_gpu_node.csv")
    ] = None,
    pods: Annotated[Path | None, _trace_option("Pods of the trace.", "openb_pod_list_VARIANT.csv")] = None,
    orders: Annotated[Path | None, _trace_option("Orders of arrival.", "arrival_orders.npz")] = None,
    variant: Annotated[str, typer.Option(help="Which mix of pods: default, gpuspec20 …")] = "default",
    seed: Annotated[int, typer.Option(help="Which order of arrival: 42, 43 …")] = 42,
    policy: Annotated[PolicyName, typer.Option(help="By which nodes are ranked.")] = PolicyName.VRAMLINE,
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one JSON line a pod: where it went.")
    ] = None,
    copies: Annotated[
        int, typer.Option(help="So many of every node, for a larger cluster.", min=1, max=_MOST_COPIES)
    ] = 1,
    learn: Annotated[
        bool,
        typer.Option(
            "--learn", help="Know nothing of the mix at first, and learn it from the pods that come."
        ),
    ] = False,
    trace: Annotated[bool, typer.Option(help="Explain and keep every decision, as the product does.")] = True,
    tracing_cost: Annotated[
        bool,
        typer.Option("--tracing-cost", help="Replay without tracing as well, in turns: what does it add?"),
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """How much of the cards a policy fills on the public GPU-sharing trace, and how fast."""
    run = _way_to_replay(trace=trace, tracing_cost=tracing_cost)
    listed = read_trace(
        _trace_file(nodes, "openb_node_list_gpu_node.csv"),
        _trace_file(pods, f"openb_pod_list_{variant}.csv"),
        _trace_file(orders, "arrival_orders.npz"),
        variant=variant,
        seed=seed,
    )
    workload = copy_nodes(listed, copies)
    lines: list[LogLine] = []
    if log is not None:
        write_lines(log, lines)  # to fail now rather than after the run
    with Progress() as progress:
        bar = progress.stage("placing pods", least=1)
        report = run(
            workload,
            variant=variant,
            seed=seed,
            policy=policy,
            learns=learn,
            tell=lines.append,
            progress=bar,
        )
    if log is not None:
        write_lines(log, lines)
    print_data(report, output, table=lambda: _print_openb(report))
    _count_again(workload, lines, report)


def _count_again(workload: Trace, lines: list[LogLine], report: OpenbReport) -> None:
    """Fail where a recount of the log finds a rule broken or a figure wrong."""
    broken = [f"pod {each.i} ({each.pod}) {each.what}" for each in check_log(workload, lines)]
    wrong = check_report(workload, lines, report)
    for what in broken[:10]:
        typer.echo(f"broke a rule: {what}", err=True)
    for what in wrong:
        typer.echo(f"a figure is wrong: {what}", err=True)
    if broken or wrong:
        raise typer.Exit(1)


def _way_to_replay(*, trace: bool, tracing_cost: bool) -> Callable[..., OpenbReport]:
    if tracing_cost and not trace:
        raise RequestError(
            subject="bench openb", problem="--tracing-cost replays with and without tracing; drop --no-trace"
        )
    return replay_in_turns if tracing_cost else partial(replay, trace_decisions=trace)


def _trace_file(given: Path | None, name: str) -> Path:
    data = os.environ.get("VRAMLINE_DATA")
    if given is None and not data:
        raise RequestError(
            subject="bench openb",
            problem="there is no trace to replay",
            accepted="--nodes, --pods and --orders, or VRAMLINE_DATA with openb/ in it",
        )
    return given or Path(data or "") / "openb" / name


def _print_openb(report: OpenbReport) -> None:
    print_table(
        ["demand %", "allocated %"],
        [(level, "–" if part is None else f"{part:.2f}") for level, part in report.alloc.items()],
        numbers=["demand %", "allocated %"],
    )
    dropped = ", ".join(f"{number:,} {kind}" for kind, number in report.rejected.items())
    typer.echo(f"{report.variant}, seed {report.seed}, policy {report.policy}; dropped: {dropped}")
    typer.echo(
        f"{report.decisions:,} decisions at {report.nodes:,} nodes in {report.cpu_s:.1f} s of CPU time,"
        f" {report.per_s:,.0f} a second: median {report.p50_us:,.0f} µs,"
        f" 99 % within {report.p99_us:,.0f} µs; peak memory {report.peak_rss_mib} MiB"
    )
    if report.tracing_percent is not None:
        typer.echo(f"tracing adds {report.tracing_percent:.1f} % to deciding alone")


def _measured_file(measured: Path | None) -> Path:
    data = os.environ.get("VRAMLINE_DATA")
    if measured is None and not data:
        raise RequestError(
            subject="bench estimate",
            problem="there is nothing to compare with",
            accepted="--measured CSV, or VRAMLINE_DATA with models/vllm_h100_measured.csv in it",
        )
    return measured or Path(data or "") / "models" / "vllm_h100_measured.csv"


def _print_errors(report: EstimateReport) -> None:
    columns = ["model", "tp", "pp", "weights", "error", "activation", "error", "graphs", "error", "kv error"]
    columns += ["all but KV", "error", "inside"]
    print_table(
        columns,
        [
            (
                run.model,
                str(run.tp),
                str(run.pp),
                f"{run.weights:.2f}",
                f"{run.weights_error:+.2%}",
                f"{run.activation:.2f}",
                f"{run.activation_error:+.1%}",
                f"{run.graphs:.2f}",
                f"{run.graphs_error:+.1%}",
                f"{run.kv_error:+.3%}",
                f"{run.fixed:.2f}",
                f"{run.fixed_error:+.1%}",
                "yes" if run.inside else "no",
            )
            for run in report.runs
        ],
        numbers=columns[1:-1],
    )
    typer.echo("")
    print_table(
        ["error of", "median", "worst", "left out: median", "left out: worst"],
        [
            (
                each.part,
                f"{each.median:.3%}",
                f"{each.worst:+.3%}",
                f"{each.left_out_median:.3%}",
                f"{each.left_out_worst:+.3%}",
            )
            for each in report.errors
        ],
        numbers=["median", "worst", "left out: median", "left out: worst"],
    )
    used, fitted = msgspec.to_builtins(report.constants), msgspec.to_builtins(report.fitted)
    print_table(
        ["constant", "in use", "these runs say"],
        [(name, f"{value:g}", f"{fitted[name]:.4g}") for name, value in used.items()],
        numbers=["in use", "these runs say"],
    )
    typer.echo("Left out: each model with constants that were fitted on all the others.")
    typer.echo(f"GiB. {report.inside} of {len(report.runs)} runs lie between low and high.")
    for line in report.skipped:
        typer.echo(f"skipped: {line}", err=True)


def _print_simulation(done: SimulateFigures) -> None:
    columns = ["nodes", "gpus/node", "pods", "bound", "pending", "input", "read", "run", "a pod", "peak"]
    row = (
        f"{done.nodes:,}",
        str(done.gpus_per_node),
        f"{done.pods:,}",
        f"{done.bound:,}",
        f"{done.pending:,}",
        f"{done.input_mib:,.1f} MiB",
        f"{done.read_s:,.2f} s",
        f"{done.run_s:,.2f} s",
        f"{done.pod_us:,.0f} µs",
        f"{done.peak_rss_mib:,} MiB",
    )
    print_table(columns, [row], numbers=columns)


def _tell(done: DecideFigures) -> None:
    typer.echo(f"{done.nodes:,} nodes: {done.cpu_us:,.0f} µs", err=True)


def _say_nothing(_done: DecideFigures) -> None:
    """JSON and YAML say it all at the end."""


def _print_report(report: DecideReport) -> None:
    columns = ["nodes", "gpus/node", "decisions", "placed", "cpu", "p50", "p99"]
    print_table(
        columns,
        [
            (
                f"{row.nodes:,}",
                str(row.gpus_per_node),
                f"{row.decisions:,}",
                f"{row.placed:,}",
                f"{row.cpu_us:,.1f} µs",
                f"{row.p50_us:,.1f} µs",
                f"{row.p99_us:,.1f} µs",
            )
            for row in report.sizes
        ],
        numbers=columns,
    )
    typer.echo(
        f"{report.nodes_ratio:g} times the nodes cost {report.ratio:g} times the CPU time;"
        f" peak memory {report.peak_rss_mib:,} MiB"
    )


add_service_benches(app)
