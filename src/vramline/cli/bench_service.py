"""`vramline bench extender` and `recovery`: the scheduler as a process of its own, measured from outside."""

from typing import Annotated

import typer

from vramline.bench.extender import CallFigures, ExtenderFigures, measure_extender
from vramline.bench.population import PopulationShape
from vramline.bench.recovery import RecoveryFigures, measure_recovery
from vramline.cli.apps import examples
from vramline.cli.output import OutputFormat, OutputOption, print_data, print_table
from vramline.cli.progress import Progress
from vramline.cli.sizes import MOST_GPUS, MOST_NODES, MOST_PODS, read_sizes

__all__ = ["add_service_benches"]

_CLAIMS_A_NODE = 4

GpusOption = Annotated[int, typer.Option(help="Cards on each node.", min=1, max=MOST_GPUS)]
PodsOption = Annotated[
    int | None,
    typer.Option(
        help="Pods that run, each with a claim.  [default: 4 a node]",
        min=1,
        max=MOST_PODS,
        show_default=False,
    ),
]
SeedOption = Annotated[int, typer.Option(help="Seed of the cluster.")]


def add_service_benches(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(
        epilog=examples(
            "vramline bench extender", "vramline bench extender --nodes 5000 --gpus 8 --pods 20000 -o json"
        )
    )(extender)
    app.command(
        epilog=examples(
            "vramline bench recovery", "vramline bench recovery --nodes 5000 --pods 20000 --starts 5 -o json"
        )
    )(recovery)


def extender(
    *,
    nodes: Annotated[str, typer.Option(help="Sizes of cluster, a comma list.")] = "100,1000,5000,10000",
    gpus: GpusOption = 8,
    pods: PodsOption = None,
    calls: Annotated[int, typer.Option(help="Pods to place at each size.", min=1, max=100_000)] = 200,
    seed: SeedOption = 1,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """What filter, prioritize and bind cost over HTTP, beside an endpoint that only reads and writes JSON."""
    done = []
    with Progress() as progress:
        for size in read_sizes(nodes, subject="bench extender"):
            claims = pods or _CLAIMS_A_NODE * size
            shape = PopulationShape(nodes=size, gpus=gpus, pods=claims, waiting=calls, seed=seed)
            bar = progress.stage(f"placing pods on {size:,} nodes", least=1)
            done.append(measure_extender(shape, progress=bar))
    print_data(done[0] if len(done) == 1 else {"sizes": done}, output, table=lambda: _print_extender(done))


def recovery(
    *,
    nodes: Annotated[int, typer.Option(help="How many nodes.", min=1, max=MOST_NODES)] = 5_000,
    gpus: GpusOption = 8,
    pods: PodsOption = None,
    starts: Annotated[int, typer.Option(help="How often to start.", min=1, max=100)] = 3,
    seed: SeedOption = 1,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """From the start of a scheduler's process to its first right decision, in a cluster that is busy."""
    shape = PopulationShape(nodes=nodes, gpus=gpus, pods=pods or _CLAIMS_A_NODE * nodes, seed=seed)
    with Progress() as progress:
        done = measure_recovery(shape, starts=starts, progress=progress.stage("starting", least=1))
    print_data(done, output, table=lambda: _print_recovery(done))
    if done.wrong:
        typer.echo(f"{done.wrong} decisions were wrong", err=True)
        raise typer.Exit(1)


def _print_extender(done: list[ExtenderFigures]) -> None:
    columns = ["nodes", "claims", "call", "p50", "p99", "cpu", "floor", "over floor"]
    rows = [row for each in done for row in _extender_rows(each)]
    print_table(columns, rows, numbers=[name for name in columns if name != "call"])
    for each in done:
        placed = f"{each.placed:,} of {each.calls:,} pods placed"
        typer.echo(f"{each.nodes:,} nodes: {placed}; memory {each.rss_mib:,.0f} MiB")


def _extender_rows(done: ExtenderFigures) -> list[tuple[str, ...]]:
    calls: tuple[tuple[str, CallFigures, CallFigures | None, float | None], ...] = (
        ("filter", done.filter, done.floor, done.filter_over_floor),
        ("prioritize", done.prioritize, done.prioritize_floor, done.prioritize_over_floor),
        ("bind", done.bind, None, None),
    )
    return [
        (
            f"{done.nodes:,}",
            f"{done.claims:,}",
            name,
            f"{call.p50_ms:.2f} ms",
            f"{call.p99_ms:.2f} ms",
            f"{call.cpu_ms:.2f} ms",
            "–" if floor is None else f"{floor.cpu_ms:.2f} ms",
            "–" if over is None else f"{over:.1f} ×",
        )
        for name, call, floor, over in calls
    ]


def _print_recovery(done: RecoveryFigures) -> None:
    columns = [
        "start",
        "right after",
        "of that after the data",
        "cpu",
        "beside it",
        "peak",
        "beside it, peak",
    ]
    rows = [
        (
            str(number),
            f"{each.right_s:.2f} s",
            f"{each.after_data_s:.2f} s",
            f"{each.cpu_s:.2f} s",
            f"{each.beside_s:.2f} s",
            f"{each.peak_rss_mib:,.0f} MiB",
            f"{each.beside_peak_rss_mib:,.0f} MiB",
        )
        for number, each in enumerate(done.starts, start=1)
    ]
    print_table(columns, rows, numbers=columns)
    typer.echo(f"{done.nodes:,} nodes with {done.gpus_per_node} GPUs each, {done.pods:,} pods")
