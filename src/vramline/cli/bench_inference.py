"""`vramline bench inference`: how long the choice of a node for a service takes."""

from typing import Annotated

import typer

from vramline.bench.inference import InferenceFigures, measure_inference
from vramline.bench.manifests import ClusterShape
from vramline.cli.apps import examples
from vramline.cli.output import OutputFormat, OutputOption, print_data, print_table

__all__ = ["EXAMPLES", "inference"]

EXAMPLES = examples("vramline bench inference", "vramline bench inference --nodes 5000 --rounds 20 -o json")


def inference(
    *,
    nodes: Annotated[int, typer.Option(help="How many nodes.", min=1, max=20_000)] = 1_000,
    gpus: Annotated[int, typer.Option(help="Cards on each node.", min=1, max=16)] = 8,
    pods: Annotated[int, typer.Option(help="How many pods run.", min=0, max=1_000_000)] = 2_000,
    rounds: Annotated[int, typer.Option(help="How often each question is asked.", min=1, max=10_000)] = 50,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """CPU time to choose a node for an inference service once the cluster was read.

    Exit status 1 if a process was started or a connection made for it: both must be none.
    """
    done = measure_inference(ClusterShape(nodes=nodes, gpus=gpus, pods=pods, running=1.0), rounds=rounds)
    print_data(done, output, table=lambda: _print_figures(done))
    if done.processes or done.connections:
        raise typer.Exit(1)


def _print_figures(done: InferenceFigures) -> None:
    print_table(
        ["question", "answer", "p50", "p99"],
        [
            (each.question, each.answer, f"{each.p50_ms:.2f} ms", f"{each.p99_ms:.2f} ms")
            for each in done.questions
        ],
        numbers=["p50", "p99"],
    )
    typer.echo(
        f"{done.nodes:,} nodes of {done.gpus_per_node} GPUs and {done.pods:,} pods:"
        f" built in {done.build_ms:,.0f} ms, peak memory {done.peak_rss_mib:,} MiB"
    )
    typer.echo(f"{done.processes} processes started, {done.connections} connections made")
