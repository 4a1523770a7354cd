"""`vramline estimate`: how much memory a model needs, line by line."""

from typing import Annotated

import msgspec
import typer

from vramline.cli.apps import examples, new_app
from vramline.cli.model_options import ModelArgument, Serving, TpOption, read_card, takes_serving
from vramline.cli.output import OutputFormat, OutputOption, print_data, print_table
from vramline.cli.text import one_line
from vramline.errors import RequestError
from vramline.inference.estimate import Estimate, estimate
from vramline.inference.source import load_model
from vramline.units import format_mib

__all__ = ["app"]

app = new_app()

GpuMemoryOption = Annotated[
    str | None,
    typer.Option(metavar="MIB", help="Total of the card it is for, such as 80Gi.", show_default=False),
]
GpuModelOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What that card is called: on an A100 vLLM takes smaller batches.",
        show_default=False,
    ),
]
FractionOption = Annotated[
    float | None,
    typer.Option(
        "--memory-fraction",
        "--gpu-memory-utilization",
        "--mem-fraction-static",
        metavar="SHARE",
        help="Share of the card that the engine may take; says how many tokens it can then keep.",
        min=0.01,
        max=1.0,
        show_default=False,
    ),
]


@app.command(
    "estimate",
    epilog=examples(
        "vramline estimate config.json",
        "vramline estimate models/Llama-3.1-8B-Instruct --context 8192 --concurrency 16 --gpu-memory 80Gi",
        "vramline estimate config.json --tp 4 --kv-dtype fp8 --quantization fp8 -o json",
        "vramline estimate qwen3-8b-q4_k_m.gguf --ctx 16384",
        "vramline estimate clusterbasemodel.yaml --engine sglang",
    ),
)
@takes_serving
def estimate_model(  # noqa: PLR0913 — one parameter an option
    model: ModelArgument,
    *,
    serving: Serving,
    tp: TpOption = 1,
    gpu_memory: GpuMemoryOption = None,
    gpu_model: GpuModelOption = "",
    memory_fraction: FractionOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Say how much memory a model needs on each GPU, with low and high bounds and every formula.

    Reads a config, file headers or a manifest; never the weights, never the network. A model with a part
    that is not understood is refused with the field's name: no figure is better than a wrong one.
    """
    if memory_fraction is not None and gpu_memory is None:
        raise RequestError(
            subject="estimate",
            field="--memory-fraction",
            value=memory_fraction,
            problem="is a share of a card whose size is not known",
            accepted="together with --gpu-memory 80Gi",
        )
    plan = msgspec.structs.replace(
        serving.plan(tp=tp),
        card_mib=read_card(gpu_memory),
        card_model=gpu_model,
        memory_fraction=memory_fraction,
    )
    found = estimate(load_model(model), plan)
    print_data(found, output, table=lambda: _print_estimate(found))


def _print_estimate(found: Estimate) -> None:
    parameters = "?" if found.parameters is None else f"{found.parameters:,}"
    typer.echo(f"{one_line(found.model)} ({one_line(found.model_type)}), {parameters} parameters")
    gpus = found.tp * found.pp
    typer.echo(
        f"{found.engine}, {gpus} {'GPU' if gpus == 1 else 'GPUs'} (tp {found.tp}, pp {found.pp}),"
        f" {found.dtype}, quantization {found.quantization}, KV cache {found.kv_dtype},"
        f" {found.concurrency:,} × {found.context:,} tokens"
    )
    typer.echo("")
    rows = [
        (line.part, *_figures(line.low_mib, line.expected_mib, line.high_mib), line.formula)
        for line in found.lines
    ]
    need, total = found.per_gpu, found.total
    rows.append(("each GPU", *_figures(need.low, need.expected, need.high), "sum, in MiB"))
    if gpus > 1:
        rows.append((f"all {gpus} GPUs", *_figures(total.low, total.expected, total.high), ""))
    print_table(["MiB", "low", "expected", "high", "formula"], rows, numbers=("low", "expected", "high"))
    _print_rest(found)


def _figures(low: int, expected: int, high: int) -> tuple[str, str, str]:
    return f"{low:,}", f"{expected:,}", f"{high:,}"


def _print_rest(found: Estimate) -> None:
    typer.echo("")
    if found.card is not None:
        card = found.card
        verdict = "holds" if card.fits else "does not surely hold"
        typer.echo(
            f"A card of {format_mib(card.total_mib)} {verdict} it. At memory fraction {card.at_fraction:g}"
            f" it has room for {card.kv_tokens:,} tokens of KV cache."
        )
    typer.echo(f"Ask for it with vramline.io/vram: {found.per_gpu.high}Mi on each GPU.")
    typer.echo(f"The figures hold with {' '.join(found.flags)}")
    for note in found.notes:
        typer.echo(f"note: {one_line(note)}")
