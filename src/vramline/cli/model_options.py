"""Options that say which model and how it is served: the same for `estimate` and `fit`."""

from dataclasses import dataclass
from typing import Annotated

import typer

from vramline.errors import RequestError
from vramline.inference.caches import Engine
from vramline.inference.estimate import Plan
from vramline.inference.quantization import METHODS, quantise_on_load
from vramline.units import parse_vram

__all__ = [
    "ConcurrencyOption",
    "ContextOption",
    "DtypeOption",
    "EagerOption",
    "EngineOption",
    "KvDtypeOption",
    "MaxBatchedTokensOption",
    "MaxNumSeqsOption",
    "ModelArgument",
    "PpOption",
    "QuantizationOption",
    "Serving",
    "TpOption",
    "read_card",
]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What those options say."""

    engine: Engine
    tp: int
    pp: int
    context: int | None
    concurrency: int
    dtype: str
    kv_dtype: str
    quantization: str | None
    max_num_seqs: int | None
    max_batched_tokens: int | None
    eager: bool

    def plan(self, *, card_mib: int | None = None, fraction: float | None = None) -> Plan:
        """Return the plan; `card_mib` is the card that it is for."""
        scheme = None if self.quantization is None else quantise_on_load(self.quantization)
        return Plan(
            engine=self.engine,
            tp=self.tp,
            pp=self.pp,
            context=self.context,
            concurrency=self.concurrency,
            dtype=self.dtype,
            kv_dtype=self.kv_dtype,
            quantization=scheme,
            max_num_seqs=self.max_num_seqs,
            max_batched_tokens=self.max_batched_tokens,
            graphs=not self.eager,
            card_mib=card_mib,
            memory_fraction=fraction,
        )


def read_card(text: str | None) -> int | None:
    """Read the size of a card."""
    if text is None:
        return None
    try:
        return parse_vram(text)
    except ValueError as error:
        raise RequestError(
            subject="estimate",
            field="--gpu-memory",
            value=text,
            problem=str(error),
            accepted="81559, 81559Mi or 80Gi",
        ) from None
