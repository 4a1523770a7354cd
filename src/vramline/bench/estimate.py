"""How good the estimate is: measured runs of vLLM beside what `estimate` says, part by part.

`measured_models.json` has the sizes of the measured models, written down from their public configs, as far as
memory depends on them.
"""

import csv
import statistics
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from pathlib import Path

import msgspec

from vramline.errors import RequestError
from vramline.inference.caches import cache_bytes_per_token
from vramline.inference.engines import Span
from vramline.inference.estimate import Model, Plan, Stage, plan_stages
from vramline.inference.hf_config import read_config
from vramline.inference.quantization import quantise_on_load, read_quantization

__all__ = [
    "ErrorFigures",
    "EstimateReport",
    "MeasuredRun",
    "compare_runs",
    "read_configs",
    "read_measured_models",
]

_GIB = 2**30
_NUMBER = {"float32": 4, "float16": 2, "bfloat16": 2}


class MeasuredRun(msgspec.Struct, kw_only=True):
    """One run and its estimate, in GiB; `fixed` is everything but the KV cache."""

    model: str
    tp: int
    pp: int
    dense: bool
    weights: float
    weights_error: float
    """Relative: 0.01 is one percent too much."""
    activation: float
    activation_error: float
    graphs: float
    graphs_error: float
    kv_bytes_per_token: float
    kv_error: float
    fixed: float
    fixed_error: float
    inside: bool
    """Whether the measured sum lies between low and high."""


class ErrorFigures(msgspec.Struct, kw_only=True):
    """How large the errors of one part are."""

    part: str
    median: float
    worst: float


class EstimateReport(msgspec.Struct, kw_only=True):
    """All runs, and what they say together."""

    runs: list[MeasuredRun]
    skipped: list[str]
    """Rows that failed, or whose model is not known here."""
    errors: list[ErrorFigures]
    inside: int


def read_measured_models() -> dict[str, dict[str, object]]:
    """Return the sizes of the measured models by name."""
    text = resources.files("vramline.bench").joinpath("measured_models.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, dict[str, object]])


def read_configs(folder: Path) -> dict[str, dict[str, object]]:
    """Return the configs of a folder by model: `Qwen--Qwen3-8B.json` is that of Qwen/Qwen3-8B."""
    found: dict[str, dict[str, object]] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            config = msgspec.json.decode(file.read_bytes(), type=dict[str, object])
        except (OSError, msgspec.DecodeError) as error:
            raise RequestError(
                subject=str(file), problem=f"cannot be read: {error}", accepted="a config.json"
            ) from None
        found[file.stem.replace("--", "/")] = config
    return found


def compare_runs(file: Path, configs: Path | None = None) -> EstimateReport:
    """Compare every successful run of a table of measurements with its estimate.

    `configs` is a folder with the configs of more models, or other ones of models that are known here.
    """
    models = {**read_measured_models(), **({} if configs is None else read_configs(configs))}
    runs: list[MeasuredRun] = []
    skipped: list[str] = []
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                name = row.get("model") or ""
                if row.get("status") != "ok" or name not in models:
                    skipped.append(f"{name}: {'not known here' if name not in models else row.get('status')}")
                else:
                    runs.append(_compare(row, models[name]))
    except (OSError, KeyError, ValueError, UnicodeDecodeError) as error:
        raise RequestError(
            subject=str(file),
            problem=f"cannot be read: {error}",
            accepted="a table of measured runs (CSV)",
        ) from None
    return EstimateReport(
        runs=runs, skipped=skipped, errors=_errors(runs), inside=sum(run.inside for run in runs)
    )


def _compare(row: Mapping[str, str], config: Mapping[str, object]) -> MeasuredRun:
    model = Model(
        name=row["model"],
        architecture=read_config(config, row["model"]),
        scheme=read_quantization(config, row["model"]),
    )
    plan = Plan(
        tp=int(row["tp"]),
        pp=int(row["pp"]),
        context=int(row["max_model_len"]),
        dtype=row["dtype"].removeprefix("torch."),
        kv_dtype=row["kv_cache_dtype"],
        quantization=quantise_on_load("fp8") if row["quantization"] == "fp8" else None,
        card_mib=int(float(row["init_total_memory_gib"]) * 1024),
    )
    stages = plan_stages(model, plan)
    first = stages[0]  # the process that writes the log
    measured = _measured(row)
    told = _told(first)
    sums = {name: sum(getattr(span, name) for span in told.values()) / _GIB for name in ("low", "high")}
    fixed, expected = sum(measured.values()), sum(span.expected for span in told.values()) / _GIB
    per_token = _measured_per_token(row, stages)
    return MeasuredRun(
        model=row["model"],
        tp=plan.tp,
        pp=plan.pp,
        dense=model.architecture.moe is None,
        weights=measured["weights"],
        weights_error=told["weights"].expected / _GIB / measured["weights"] - 1,
        activation=measured["activation"],
        activation_error=told["activation"].expected / _GIB / measured["activation"] - 1,
        graphs=measured["graphs"],
        graphs_error=told["graphs"].expected / _GIB / measured["graphs"] - 1,
        kv_bytes_per_token=per_token,
        kv_error=_per_token(model, plan) / per_token - 1,
        fixed=fixed,
        fixed_error=expected / fixed - 1,
        inside=sums["low"] <= fixed <= sums["high"],
    )


def _measured(row: Mapping[str, str]) -> dict[str, float]:
    return {
        "weights": float(row["weight_memory_gib"]),
        "activation": float(row["activation_memory_gib"]),
        "non_torch": float(row["non_torch_forward_gib"]),
        "graphs": float(row["cuda_graph_actual_gib"]),
        "context": float(row["init_cuda_memory_gib"]),
    }


def _told(stage: Stage) -> dict[str, Span]:
    extra = stage.extra
    return {
        "weights": stage.weights,
        "activation": extra.activation,
        "non_torch": extra.non_torch,
        "graphs": extra.graphs,
        "context": extra.context,
    }


def _measured_per_token(row: Mapping[str, str], stages: list[Stage]) -> float:
    """Return pool ÷ tokens. The tokens are those of the stage with the smallest pool, the last one."""
    more = stages[-1].extra.activation.expected - stages[0].extra.activation.expected
    return (float(row["kv_cache_memory_gib"]) * _GIB - more) / float(row["kv_cache_tokens"])


def _per_token(model: Model, plan: Plan) -> float:
    number = 1.0 if plan.kv_dtype == "fp8" else float(_NUMBER[plan.dtype])
    return cache_bytes_per_token(model.architecture, plan.engine, number_bytes=number, tp=plan.tp) / plan.pp


def _errors(runs: Iterable[MeasuredRun]) -> list[ErrorFigures]:
    runs = list(runs)
    dense = [run for run in runs if run.dense]
    parts: list[tuple[str, Callable[[MeasuredRun], float], list[MeasuredRun]]] = [
        ("weights", lambda run: run.weights_error, runs),
        ("KV bytes per token", lambda run: run.kv_error, runs),
        ("activation", lambda run: run.activation_error, runs),
        ("CUDA graphs", lambda run: run.graphs_error, runs),
        ("all but KV, dense", lambda run: run.fixed_error, dense),
        ("all but KV, all", lambda run: run.fixed_error, runs),
    ]
    return [
        ErrorFigures(
            part=part,
            median=statistics.median(abs(error_of(run)) for run in chosen),
            worst=max((error_of(run) for run in chosen), key=abs),
        )
        for part, error_of, chosen in parts
        if chosen
    ]
