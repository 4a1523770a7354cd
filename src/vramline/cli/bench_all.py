"""`vramline bench all`: every figure in one table."""

import os
from pathlib import Path
from typing import Annotated

import typer

from vramline import __version__
from vramline.bench.table import BenchTable, TableRun, measure_everything
from vramline.cli.apps import examples
from vramline.cli.output import OutputFormat, OutputOption, print_data, print_table
from vramline.cli.progress import Progress
from vramline.cli.sizes import MOST_NODES

__all__ = ["EXAMPLES", "everything", "fail_where_wrong"]

EXAMPLES = examples(
    "vramline bench all", "VRAMLINE_DATA=data vramline bench all --commit $(git rev-parse --short HEAD)"
)


def everything(
    *,
    nodes: Annotated[int, typer.Option(help="Size of the largest cluster.", min=10, max=MOST_NODES)] = 5_000,
    library: Annotated[
        Path | None, typer.Option(metavar="PATH", help="NVML library for the agent.", show_default=False)
    ] = None,
    commit: Annotated[
        str, typer.Option(metavar="NAME", help="State of the code that is measured.", show_default=False)
    ] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Every benchmark in a size that takes some minutes in all, as one table."""
    data = os.environ.get("VRAMLINE_DATA")
    run = TableRun(
        commit=commit or __version__, data=Path(data) if data else None, library=library, nodes=nodes
    )
    with Progress() as progress:
        done = measure_everything(run, progress.stage("benchmarks", least=1))
    print_data(done, output, table=lambda: _print(done))
    fail_where_wrong(done)


def fail_where_wrong(done: BenchTable) -> None:
    """Exit with 1 if a figure must never be, on however slow a machine."""
    wrong = [each for each in done.figures if each.is_wrong]
    for each in wrong:
        typer.echo(f"must never be: {each.bench}, {each.what.strip()}: {each.value}", err=True)
    if wrong:
        raise typer.Exit(1)


def _print(done: BenchTable) -> None:
    columns = ["bench", "what", "figure", "goal"]
    rows = [(each.bench, each.what, each.value, each.goal) for each in done.figures]
    print_table(columns, rows, numbers=["figure"])
    typer.echo(f"commit {done.commit}")
