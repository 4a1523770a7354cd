"""Options that say which model and how it is served: the same for `estimate` and `fit`."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from vramline.errors import RequestError
from vramline.inference.caches import Engine
from vramline.inference.estimate import Plan
from vramline.inference.quantization import METHODS, quantise_on_load
from vramline.units import parse_quantity, parse_vram

__all__ = ["ModelArgument", "Serving", "TpOption", "read_card", "takes_serving"]

_MOST_GPUS = 1024

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="config.json, model folder, .gguf file, OME ClusterBaseModel (YAML), or a cached model's name.",
        show_default=False,
    ),
]
EngineOption = Annotated[Engine, typer.Option(help="Which server runs it.", case_sensitive=False)]
EngineVersionOption = Annotated[
    str,
    typer.Option(
        metavar="VERSION",
        help="Of the server, such as 0.16.  [default: the newest known]",
        show_default=False,
    ),
]
TpOption = Annotated[int, typer.Option(help="Tensor-parallel GPUs.", min=1, max=_MOST_GPUS)]
PpOption = Annotated[int, typer.Option(help="Pipeline stages.", min=1, max=_MOST_GPUS)]
ContextOption = Annotated[
    int | None,
    typer.Option(
        "--context",
        "--ctx",
        metavar="TOKENS",
        help="Longest sequence.  [default: the model's own]",
        min=1,
        show_default=False,
    ),
]
ConcurrencyOption = Annotated[int, typer.Option(help="Sequences of that length at a time.", min=1)]
DtypeOption = Annotated[str, typer.Option(help="auto, bfloat16, float16 or float32.")]
KvDtypeOption = Annotated[str, typer.Option(help="auto (as the model), fp8, bfloat16, float16 or float32.")]
QuantizationOption = Annotated[
    str | None,
    typer.Option(
        metavar="METHOD",
        help=f"Quantise while loading: {', '.join(METHODS)}.  [default: as the checkpoint is]",
        show_default=False,
    ),
]
MaxNumSeqsOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Sequences in a batch (SGLang: in a graph).  [default: the engine's]",
        min=1,
        show_default=False,
    ),
]
MaxBatchedTokensOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Tokens in a batch (SGLang: in a prefill chunk).  [default: the engine's]",
        min=1,
        show_default=False,
    ),
]
EagerOption = Annotated[bool, typer.Option("--enforce-eager", help="Without CUDA graphs.")]


class Serving:
    """What those options say. The parameters are the options: every command that takes them has the same."""

    def __init__(  # noqa: PLR0913 — one parameter an option
        self,
        *,
        engine: EngineOption = Engine.VLLM,
        engine_version: EngineVersionOption = "",
        pp: PpOption = 1,
        context: ContextOption = None,
        concurrency: ConcurrencyOption = 1,
        dtype: DtypeOption = "auto",
        kv_dtype: KvDtypeOption = "auto",
        quantization: QuantizationOption = None,
        max_num_seqs: MaxNumSeqsOption = None,
        max_batched_tokens: MaxBatchedTokensOption = None,
        enforce_eager: EagerOption = False,
    ) -> None:
        self._plan = Plan(
            engine=engine,
            engine_version=engine_version,
            pp=pp,
            context=context,
            concurrency=concurrency,
            dtype=dtype,
            kv_dtype=kv_dtype,
            quantization=None if quantization is None else quantise_on_load(quantization),
            max_num_seqs=max_num_seqs,
            max_batched_tokens=max_batched_tokens,
            graphs=not enforce_eager,
        )

    def plan(self, *, tp: int = 1) -> Plan:
        """Return the plan at a degree of tensor parallelism."""
        return msgspec.structs.replace(self._plan, tp=tp)


def takes_serving(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `Serving`, which it gets as its parameter `serving`."""
    shared = [each for each in inspect.signature(Serving).parameters.values() if each.name != "self"]
    own = [each for each in inspect.signature(command).parameters.values() if each.name != "serving"]

    @functools.wraps(command)
    def run(*, model: str, **options: Any) -> None:  # noqa: ANN401 — whatever the options are
        serving = Serving(**{each.name: options.pop(each.name) for each in shared})
        command(model=model, serving=serving, **options)

    model, *rest = own
    run.__signature__ = inspect.Signature([model, *shared, *rest])  # type: ignore[attr-defined] # as typer reads it
    run.__annotations__ = {each.name: each.annotation for each in (model, *shared, *rest)}
    return run


def read_card(text: str | None) -> int | None:
    """Read the size of a card; tools print it with decimals, and a part of a MiB does not count."""
    if text is None:
        return None
    try:
        if "." in text and text.endswith("Gi"):
            return max(int(parse_quantity(text) // 2**20), 1)
        return parse_vram(text)
    except ValueError as error:
        raise RequestError(
            subject="estimate",
            field="--gpu-memory",
            value=text,
            problem=str(error),
            accepted="81559, 81559Mi, 80Gi or 79.19Gi",
        ) from None
