"""`vramline bench vram`: what comes of counting memory by different rules."""

from typing import Annotated

import typer

from vramline.bench.vram import RuleFigures, VramFigures, measure_vram
from vramline.bench.vram_rules import RuleName
from vramline.bench.vram_world import VramShape
from vramline.cli.apps import examples
from vramline.cli.output import OutputFormat, OutputOption, print_data, print_table
from vramline.cli.progress import Progress
from vramline.cli.sizes import MOST_GPUS, MOST_NODES, MOST_PODS

__all__ = ["EXAMPLES", "vram"]

EXAMPLES = examples("vramline bench vram", "vramline bench vram --nodes 100 --pods 20000 --seed 7 -o json")


def vram(
    *,
    nodes: Annotated[int, typer.Option(help="How many nodes.", min=1, max=MOST_NODES)] = 40,
    gpus: Annotated[int, typer.Option(help="Cards on each node.", min=1, max=MOST_GPUS)] = 8,
    pods: Annotated[int, typer.Option(help="How many pods come.", min=1, max=MOST_PODS)] = 5_000,
    seed: Annotated[int, typer.Option(help="Seed of what happens.")] = 1,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Hand out VRAM on unequal cards, by our rule and by others': what fits, and which pods die of it."""
    shape = VramShape(nodes=nodes, gpus=gpus, pods=pods, seed=seed)
    with Progress() as progress:
        done = measure_vram(shape, progress=progress.stage("placing pods", least=1))
    print_data(done, output, table=lambda: _print(done))
    if any(each.over_commits for each in done.rules if each.rule is RuleName.VRAMLINE):
        typer.echo("our own rule promised more than a card had", err=True)
        raise typer.Exit(1)


def _print(done: VramFigures) -> None:
    columns = ["rule", "placed", "turned away", "over-commits", "died", "of these by the rule", "allocated"]
    print_table(columns, [_row(each) for each in done.rules], numbers=columns[1:])
    ours = next(each for each in done.rules if each.rule is RuleName.VRAMLINE)
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in ours.rejected.items()) or "nobody"
    typer.echo(f"turned away by {ours.rule}: {reasons}")
    cluster = f"{done.nodes:,} nodes with {done.gpus_per_node} GPUs each"
    typer.echo(f"{cluster}, {done.pods:,} pods, {done.strangers:,} strangers, seed {done.seed}")


def _row(each: RuleFigures) -> tuple[str, ...]:
    return (
        each.rule.value,
        f"{each.placed:,}",
        f"{sum(each.rejected.values()):,}",
        f"{each.over_commits:,}",
        f"{each.died:,}",
        f"{each.died_by_rule:,}",
        f"{each.allocated_percent:.1f} %",
    )
