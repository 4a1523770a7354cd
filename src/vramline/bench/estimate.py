"""How good the estimate is: measured runs of vLLM beside what `estimate` says, part by part.

`measured_models.json` has the sizes of the measured models, written down from their public configs, as far as
memory depends on them.
"""

import csv
import statistics
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path

import msgspec

from vramline.bench.estimate_fit import Measured, fit_constants
from vramline.errors import RequestError
from vramline.inference.caches import cache_bytes_per_token
from vramline.inference.engines import MEASURED, Constants, Span
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
    """How large the errors of one part are, with the constants in use and without the model's own runs."""

    part: str
    median: float
    worst: float
    left_out_median: float
    """Each model estimated with constants that were fitted on all the others."""
    left_out_worst: float


class EstimateReport(msgspec.Struct, kw_only=True):
    """All runs, and what they say together."""

    runs: list[MeasuredRun]
    skipped: list[str]
    """Rows that failed, or whose model is not known here."""
    errors: list[ErrorFigures]
    inside: int
    constants: Constants
    """Those in use."""
    fitted: Constants
    """Those that these runs suggest."""


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
    measured, skipped = _read_runs(file, configs)
    runs = [_compare(run, MEASURED) for run in measured]
    left_out: list[MeasuredRun] = []
    for name in sorted({run.model.name for run in measured}):
        others = fit_constants(run for run in measured if run.model.name != name)
        left_out += [_compare(run, others) for run in measured if run.model.name == name]
    return EstimateReport(
        runs=runs,
        skipped=skipped,
        errors=_errors(runs, left_out),
        inside=sum(run.inside for run in runs),
        constants=MEASURED,
        fitted=fit_constants(measured),
    )


def _read_runs(file: Path, configs: Path | None) -> tuple[list[Measured], list[str]]:
    """Read every successful run whose model is known, and name the others."""
    models = {**read_measured_models(), **({} if configs is None else read_configs(configs))}
    runs: list[Measured] = []
    skipped: list[str] = []
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                name = row.get("model") or ""
                if row.get("status") != "ok" or name not in models:
                    skipped.append(f"{name}: {'not known here' if name not in models else row.get('status')}")
                else:
                    runs.append(_read_run(row, models[name]))
    except (OSError, KeyError, ValueError, UnicodeDecodeError) as error:
        raise RequestError(
            subject=str(file),
            problem=f"cannot be read: {error}",
            accepted="a table of measured runs (CSV)",
        ) from None
    return runs, skipped


def _read_run(row: Mapping[str, str], config: Mapping[str, object]) -> Measured:
    name, dtype = row["model"], row["dtype"].removeprefix("torch.")
    return Measured(
        model=Model(
            name=name, architecture=read_config(config, name), scheme=read_quantization(config, name)
        ),
        plan=Plan(
            tp=int(row["tp"]),
            pp=int(row["pp"]),
            context=int(row["max_model_len"]),
            dtype=dtype,
            kv_dtype=row["kv_cache_dtype"],
            quantization=quantise_on_load("fp8") if row["quantization"] == "fp8" else None,
            card_mib=int(float(row["init_total_memory_gib"]) * 1024),
            card_model=row.get("gpu") or "",
            engine_version=row.get("engine_version") or "",
        ),
        number_bytes=_NUMBER[dtype],
        weights=float(row["weight_memory_gib"]),
        activation=float(row["activation_memory_gib"]),
        non_torch=float(row["non_torch_forward_gib"]),
        graphs=float(row["cuda_graph_actual_gib"]),
        context=float(row["init_cuda_memory_gib"]),
        kv_pool=float(row["kv_cache_memory_gib"]),
        kv_tokens=float(row["kv_cache_tokens"]),
    )


def _compare(run: Measured, constants: Constants) -> MeasuredRun:
    model, plan = run.model, run.plan
    own = None if constants is MEASURED else constants
    stages = plan_stages(model, plan, constants=own)
    first = stages[0]  # the process that writes the log
    told = _told(first)
    sums = {name: sum(getattr(span, name) for span in told.values()) / _GIB for name in ("low", "high")}
    fixed = run.weights + run.activation + run.non_torch + run.graphs + run.context
    expected = sum(span.expected for span in told.values()) / _GIB
    per_token = _measured_per_token(run, stages)
    return MeasuredRun(
        model=model.name,
        tp=plan.tp,
        pp=plan.pp,
        dense=run.dense,
        weights=run.weights,
        weights_error=told["weights"].expected / _GIB / run.weights - 1,
        activation=run.activation,
        activation_error=told["activation"].expected / _GIB / run.activation - 1,
        graphs=run.graphs,
        graphs_error=told["graphs"].expected / _GIB / run.graphs - 1,
        kv_bytes_per_token=per_token,
        kv_error=_per_token(run) / per_token - 1,
        fixed=fixed,
        fixed_error=expected / fixed - 1,
        inside=sums["low"] <= fixed <= sums["high"],
    )


def _told(stage: Stage) -> dict[str, Span]:
    extra = stage.extra
    return {
        "weights": stage.weights,
        "activation": extra.activation,
        "non_torch": extra.non_torch,
        "graphs": extra.graphs,
        "context": extra.context,
    }


def _measured_per_token(run: Measured, stages: list[Stage]) -> float:
    """Return pool ÷ tokens. The tokens are those of the stage with the smallest pool, the last one."""
    more = stages[-1].extra.activation.expected - stages[0].extra.activation.expected
    return (run.kv_pool * _GIB - more) / run.kv_tokens


def _per_token(run: Measured) -> float:
    plan, number = run.plan, 1.0 if run.plan.kv_dtype == "fp8" else float(run.number_bytes)
    whole = cache_bytes_per_token(run.model.architecture, plan.engine, number_bytes=number, tp=plan.tp)
    return whole / plan.pp


def _errors(runs: list[MeasuredRun], left_out: list[MeasuredRun]) -> list[ErrorFigures]:
    parts: list[tuple[str, Callable[[MeasuredRun], float], bool]] = [
        ("weights", lambda run: run.weights_error, False),
        ("KV bytes per token", lambda run: run.kv_error, False),
        ("activation", lambda run: run.activation_error, False),
        ("CUDA graphs", lambda run: run.graphs_error, False),
        ("all but KV, dense", lambda run: run.fixed_error, True),
        ("all but KV, all", lambda run: run.fixed_error, False),
    ]
    figures = []
    for part, error_of, dense_only in parts:
        errors = [error_of(run) for run in runs if run.dense or not dense_only]
        others = [error_of(run) for run in left_out if run.dense or not dense_only]
        if errors:
            figures.append(
                ErrorFigures(
                    part=part,
                    median=statistics.median(map(abs, errors)),
                    worst=max(errors, key=abs),
                    left_out_median=statistics.median(map(abs, others)),
                    left_out_worst=max(others, key=abs),
                )
            )
    return figures
