"""How much memory a model needs on each GPU, line by line, with bounds. No I/O: a model in, figures out."""

import math

import msgspec

from vramline.errors import RequestError
from vramline.inference.architecture import Architecture, StateCache, count_parameters
from vramline.inference.caches import CacheNeed, Engine, cache_bytes_per_token, stage_caches
from vramline.inference.engines import (
    Batch,
    Constants,
    Overheads,
    Span,
    batch_of,
    constants_of,
    overheads,
    read_version,
)
from vramline.inference.quantization import Scheme
from vramline.inference.weights import check_parallelism, stage_weights

__all__ = ["Card", "Estimate", "Line", "Mibs", "Model", "Plan", "Stage", "estimate", "plan_stages"]

_MIB = 2**20
_NUMBER_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "half": 2, "float": 4}
_CACHE_BYTES = {"fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "float16": 2.0, "bfloat16": 2.0, "float32": 4.0}
_DEFAULT_FRACTION = 0.9


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model to be served: what its config says, and what its files weigh where they were seen."""

    name: str
    architecture: Architecture
    scheme: Scheme | None = None
    file_bytes: int | None = None
    """Bytes of all tensors as the files hold them; None: only a config was given."""
    file_numbers: int | None = None
    """Plain numbers besides, which an engine converts to its own type."""
    parameters: int | None = None
    """As the files tell it, where the architecture names no tensors."""
    source: str = "config.json"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How it is to be served."""

    engine: Engine = Engine.VLLM
    tp: int = 1
    pp: int = 1
    context: int | None = None
    """Tokens of the longest sequence; None: as many as the model knows."""
    concurrency: int = 1
    """Sequences of that length at a time."""
    dtype: str = "auto"
    kv_dtype: str = "auto"
    quantization: Scheme | None = None
    """A quantisation that is made while loading; None: as the checkpoint is."""
    max_num_seqs: int | None = None
    max_batched_tokens: int | None = None
    graphs: bool = True
    card_mib: int | None = None
    """Total of the card that it is for."""
    card_model: str = ""
    """What that card is called; some get smaller batches than their size would give them."""
    engine_version: str = ""
    """Such as 0.16; empty: the newest that is known."""
    memory_fraction: float | None = None
    """gpu_memory_utilization or mem_fraction_static; None: the engine's default."""


class Mibs(msgspec.Struct, frozen=True):
    """An amount in MiB: at least, expected, at most. Rounded up: a promise must cover the need."""

    low: int
    expected: int
    high: int


class Line(msgspec.Struct, frozen=True):
    """One part of the need on the GPU that needs most, and how it comes about."""

    part: str
    low_mib: int
    expected_mib: int
    high_mib: int
    formula: str


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What it means on a card of a given size."""

    total_mib: int
    fits: bool
    """Whether the highest figure is within the card."""
    fraction: float
    """The gpu_memory_utilization or mem_fraction_static at which the engine takes this much and no more."""
    kv_tokens: int
    """Tokens of cache that are left at `at_fraction`."""
    at_fraction: float


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a model needs under a plan."""

    model: str
    model_type: str
    source: str
    parameters: int | None
    """None: the config does not describe all parts."""
    engine: Engine
    dtype: str
    quantization: str
    kv_dtype: str
    context: int
    concurrency: int
    tp: int
    pp: int
    max_num_seqs: int
    max_batched_tokens: int
    kv_bytes_per_token: int
    """On each GPU of one stage."""
    kv_bytes_per_token_all_gpus: int
    lines: tuple[Line, ...]
    per_gpu: Mibs
    total: Mibs
    """Over all GPUs."""
    card: Card | None
    flags: tuple[str, ...]
    """Engine flags under which the figures hold."""
    notes: tuple[str, ...]


class _Basis(msgspec.Struct, frozen=True, kw_only=True):
    """What was resolved from model and plan."""

    dtype: str
    number_bytes: int
    scheme: Scheme | None
    kv_dtype: str
    cache_bytes: float
    context: int
    batch: Batch


def estimate(model: Model, plan: Plan) -> Estimate:
    """Work out what `model` needs under `plan`; raises `RequestError` where that cannot be said."""
    basis = _resolve(model, plan)
    return _tell(model, plan, basis, plan_stages(model, plan, basis))


def plan_stages(
    model: Model, plan: Plan, basis: "_Basis | None" = None, *, constants: Constants | None = None
) -> list["Stage"]:
    """Return what each pipeline stage takes on each GPU; `constants` are the engine's unless given."""
    architecture, basis = model.architecture, basis or _resolve(model, plan)
    check_parallelism(architecture, plan.tp, plan.pp)
    caches = stage_caches(
        architecture,
        plan.engine,
        number_bytes=basis.cache_bytes,
        tp=plan.tp,
        pp=plan.pp,
        tokens=(basis.context, plan.concurrency, basis.batch.tokens),
    )
    weights = _weights(model, plan, basis)
    extra = overheads(
        architecture,
        plan.engine,
        basis.batch,
        number_bytes=basis.number_bytes,
        degrees=(plan.tp, plan.pp),
        constants=constants or constants_of(read_version(plan.engine_version)),
    )
    early = msgspec.structs.replace(extra, activation=extra.early_activation)
    extras = [*([early] * (plan.pp - 1)), extra]
    return [Stage(*parts) for parts in zip(weights, caches, extras, strict=True)]


def _resolve(model: Model, plan: Plan) -> _Basis:
    """Settle types, lengths and batch."""
    architecture = model.architecture
    dtype = plan.dtype
    if dtype == "auto":
        dtype = "bfloat16" if architecture.dtype in {"", "float32"} else architecture.dtype
    if dtype not in _NUMBER_BYTES:
        raise _wrong("--dtype", dtype, ("auto", *_NUMBER_BYTES))
    kv_dtype = dtype if plan.kv_dtype == "auto" else plan.kv_dtype
    if kv_dtype not in _CACHE_BYTES and kv_dtype not in _NUMBER_BYTES:
        raise _wrong("--kv-dtype", plan.kv_dtype, ("auto", *_CACHE_BYTES))
    return _Basis(
        dtype=dtype,
        number_bytes=_NUMBER_BYTES[dtype],
        scheme=_scheme(model, plan),
        kv_dtype=kv_dtype,
        cache_bytes=_CACHE_BYTES.get(kv_dtype) or float(_NUMBER_BYTES[kv_dtype]),
        context=_context(model, plan),
        batch=msgspec.structs.replace(
            batch_of(
                plan.engine,
                plan.card_mib,
                tp=plan.tp,
                sequences=plan.max_num_seqs,
                tokens=plan.max_batched_tokens,
                card_model=plan.card_model,
            ),
            graphs=plan.graphs,
        ),
    )


def _scheme(model: Model, plan: Plan) -> Scheme | None:
    if plan.quantization is None:
        return model.scheme
    if model.scheme is None and model.architecture.embedding:
        return plan.quantization
    if model.scheme is not None and plan.quantization.method == model.scheme.method:
        return model.scheme
    already = "as its file is" if model.scheme is None else f"{model.scheme.method} already"
    raise RequestError(
        subject=model.name,
        field="--quantization",
        value=plan.quantization.method,
        problem=f"the checkpoint is {already}",
        accepted="the call without it",
    )


def _context(model: Model, plan: Plan) -> int:
    known = model.architecture.max_context
    if plan.context is None and known is None:
        raise RequestError(
            subject=model.name,
            field="max_position_embeddings",
            problem="is missing, so the longest sequence is not known",
            accepted="--context TOKENS",
        )
    return plan.context or known or 0


def _wrong(option: str, value: str, accepted: tuple[str, ...]) -> RequestError:
    return RequestError(
        subject="estimate",
        field=option,
        value=value,
        problem="is not understood",
        accepted=", ".join(accepted),
    )


def _weights(model: Model, plan: Plan, basis: _Basis) -> list[Span]:
    """Return the weights on each GPU of each stage: by the files where they were seen, else by the config."""
    architecture, scheme = model.architecture, basis.scheme
    counted = stage_weights(architecture, scheme, number_bytes=basis.number_bytes, tp=plan.tp, pp=plan.pp)
    divided = f" ÷ tp {plan.tp}" if plan.tp > 1 else ""
    divided += f", the largest of {plan.pp} stages" if plan.pp > 1 else ""
    if model.file_bytes is not None and scheme is model.scheme:
        return _weights_of_files(model, plan, basis, counted, divided)
    parameters = count_parameters(architecture)
    how, slack = f"{parameters:,} parameters × {basis.number_bytes} B ({basis.dtype}){divided}", 0.002
    if scheme is not None:
        how, slack = f"{parameters:,} parameters{divided}, {scheme.describe()}", 0.01
    if architecture.rope_numbers:
        how += f" + {architecture.rope_numbers:,} of rotary tables × {basis.number_bytes} B"
    how += ", in the allocator's blocks"
    least = counted
    if scheme is not None and scheme.pad_to > 1:
        bare = msgspec.structs.replace(scheme, pad_to=1)
        least = stage_weights(architecture, bare, number_bytes=basis.number_bytes, tp=plan.tp, pp=plan.pp)
    return [
        Span((1 - slack) * low, size, (1.01 + slack) * size, how)
        for low, size in zip(least, counted, strict=True)
    ]


def _weights_of_files(
    model: Model, plan: Plan, basis: _Basis, counted: list[int], divided: str
) -> list[Span]:
    """Deal out what the files hold in the way that the config's tensors are dealt out.

    What an engine makes besides (rotary tables, padding, second forms) is as the config says.
    """
    held = (model.file_bytes or 0) + (model.file_numbers or 0) * basis.number_bytes
    bare = None if basis.scheme is None else msgspec.structs.replace(basis.scheme, pad_to=1)

    def stored(tp: int, pp: int) -> list[int]:
        return stage_weights(
            model.architecture, bare, number_bytes=basis.number_bytes, tp=tp, pp=pp, only_stored=True
        )

    whole, shares = sum(stored(1, 1)), stored(plan.tp, plan.pp)
    made = [size - share for size, share in zip(counted, shares, strict=True)]
    how = f"{held:,} B in {model.source}{divided}"
    if max(made) > 0:
        how += f" + {max(made):,} B of tables and padding"
    if not whole:
        share = held / plan.tp / plan.pp
        return [Span(share, share, (1.15 if plan.pp > 1 else 1.01) * share, how)] * plan.pp
    if model.architecture.uncounted is not None and held > whole:
        # What the config does not describe is on the first stage; whether it is dealt out is not known.
        rest = [held - whole, *([0] * (plan.pp - 1))]
        return [
            Span(size + more / plan.tp, size + more, 1.01 * (size + more), how)
            for size, more in zip(counted, rest, strict=True)
        ]
    sizes = [share * held / whole + more for share, more in zip(shares, made, strict=True)]
    return [Span(0.998 * size, size, 1.01 * size, how) for size in sizes]


class Stage(msgspec.Struct, frozen=True):
    """One pipeline stage: what each of its GPUs holds."""

    weights: Span
    cache: CacheNeed
    extra: Overheads

    def need(self) -> Span:
        """Return the sum."""
        extra = self.extra
        spans = (self.weights, extra.activation, extra.non_torch, extra.graphs, extra.context)
        return Span(
            sum(span.low for span in spans) + self.cache.low,
            sum(span.expected for span in spans) + self.cache.expected,
            sum(span.high for span in spans) + self.cache.high,
        )

    def budget(self, engine: Engine) -> float:
        """Return the bytes that the engine's memory fraction must cover."""
        static = self.weights.expected + self.cache.expected
        if engine is Engine.SGLANG:
            return static
        return static + self.extra.activation.expected + self.extra.non_torch.expected


def _tell(model: Model, plan: Plan, basis: _Basis, stages: list[Stage]) -> Estimate:
    """Put everything into the figures that are shown."""
    architecture = model.architecture
    per_token = cache_bytes_per_token(architecture, plan.engine, number_bytes=basis.cache_bytes, tp=plan.tp)
    worst = max(stages, key=lambda stage: stage.need().expected)
    return Estimate(
        model=model.name,
        model_type=architecture.model_type,
        source=model.source,
        parameters=model.parameters or _parameters(architecture),
        engine=plan.engine,
        dtype=basis.dtype,
        quantization="none" if basis.scheme is None else basis.scheme.describe(),
        kv_dtype=basis.kv_dtype,
        context=basis.context,
        concurrency=plan.concurrency,
        tp=plan.tp,
        pp=plan.pp,
        max_num_seqs=basis.batch.sequences,
        max_batched_tokens=basis.batch.tokens,
        kv_bytes_per_token=round(per_token / plan.pp),
        kv_bytes_per_token_all_gpus=round(per_token * plan.tp),
        lines=_lines(plan, basis, worst, per_token),
        per_gpu=_mibs(worst.need()),
        total=_mibs(_total([stage.need() for stage in stages], plan.tp)),
        card=_card(plan, worst, per_token),
        flags=_flags(plan, basis, worst),
        notes=_notes(model, plan, basis),
    )


def _parameters(architecture: Architecture) -> int | None:
    return None if architecture.uncounted is not None else count_parameters(architecture) or None


def _total(needs: list[Span], tp: int) -> Span:
    return Span(
        tp * sum(need.low for need in needs),
        tp * sum(need.expected for need in needs),
        tp * sum(need.high for need in needs),
    )


def _mibs(span: Span) -> Mibs:
    return Mibs(*(math.ceil(size / _MIB) for size in (span.low, span.expected, span.high)))


def _lines(plan: Plan, basis: _Basis, worst: Stage, per_token: float) -> tuple[Line, ...]:
    weights, cache, extra = worst.weights, worst.cache, worst.extra
    stage = f" ÷ pp {plan.pp}" if plan.pp > 1 else ""
    how = f"{per_token:,.0f} B a token{stage} × {basis.context:,} tokens × {plan.concurrency:,} sequences"
    if cache.expected < per_token / plan.pp * basis.context * plan.concurrency * 0.98:
        how += ", less what windows forget"
    named = (
        ("weights", weights),
        ("kv cache", Span(cache.low, cache.expected, cache.high, how)),
        ("activation", extra.activation),
        ("non-torch", extra.non_torch),
        ("cuda graphs", extra.graphs),
        ("cuda context", extra.context),
    )
    lines = []
    for name, span in named:
        mibs = _mibs(span)
        lines.append(Line(name, mibs.low, mibs.expected, mibs.high, span.formula))
    return tuple(lines)


def _card(plan: Plan, worst: Stage, per_token: float) -> Card | None:
    if plan.card_mib is None:
        return None
    total = plan.card_mib * _MIB
    at = plan.memory_fraction or _default_fraction(plan, worst.extra)
    left = at * total - (worst.budget(plan.engine) - worst.cache.expected)
    tokens = int(left / (per_token / plan.pp)) if per_token else 0
    return Card(
        total_mib=plan.card_mib,
        fits=worst.need().high <= total,
        fraction=_fraction(worst.budget(plan.engine), total),
        kv_tokens=max(tokens, 0),
        at_fraction=round(at, 3),
    )


def _default_fraction(plan: Plan, extra: Overheads) -> float:
    """Return the fraction that the engine takes unless it is told one."""
    if plan.engine is Engine.VLLM or plan.card_mib is None:
        return _DEFAULT_FRACTION
    reserve = (extra.activation.expected + extra.graphs.expected + extra.non_torch.expected) / _MIB
    if plan.card_mib > 60 * 1024:
        reserve = max(reserve, 10 * 1024)
    return max((plan.card_mib - reserve) / plan.card_mib, 0.0)


def _fraction(need: float, total: float) -> float:
    """Return a share of the card, rounded up to three places: less would not hold what was asked for."""
    return math.ceil(need / total * 1000) / 1000


def _flags(plan: Plan, basis: _Basis, worst: Stage) -> tuple[str, ...]:
    """Return engine flags under which the engine takes this much and no more."""
    vllm = plan.engine is Engine.VLLM
    flags = [f"--max-model-len={basis.context}" if vllm else f"--context-length={basis.context}"]
    if plan.tp > 1:
        flags.append(f"--tensor-parallel-size={plan.tp}" if vllm else f"--tp-size={plan.tp}")
    if plan.pp > 1:
        flags.append(f"--pipeline-parallel-size={plan.pp}" if vllm else f"--pp-size={plan.pp}")
    if vllm:
        flags.append(f"--max-num-seqs={basis.batch.sequences}")
        flags.append(f"--max-num-batched-tokens={basis.batch.tokens}")
    if plan.card_mib is not None and worst.need().expected <= plan.card_mib * _MIB:
        name = "--gpu-memory-utilization" if vllm else "--mem-fraction-static"
        flags.append(f"{name}={_fraction(worst.budget(plan.engine), plan.card_mib * _MIB)}")
    return tuple(flags)


def _notes(model: Model, plan: Plan, basis: _Basis) -> tuple[str, ...]:
    notes = list(model.architecture.notes)
    if plan.context is None:
        notes.append(f"context {basis.context:,} is the model's longest; --context asks for less")
    known = model.architecture.max_context
    if known is not None and basis.context > known:
        notes.append(f"context {basis.context:,} is more than the model's own {known:,}")
    if plan.card_mib is None:
        notes.append(
            f"batch of {basis.batch.sequences:,} sequences and {basis.batch.tokens:,} tokens:"
            " the engine's default on a card of 70 GiB or more; --gpu-memory names another"
        )
    if plan.engine is Engine.SGLANG:
        notes.append("SGLang: activation, graphs and libraries by its own rule, not checked by measurements")
        if plan.engine_version:
            notes.append("SGLang: its version makes no difference here")
    if any(isinstance(layer.cache, StateCache) for layer in model.architecture.layers):
        notes.append("state of fixed size for each sequence: not checked by measurements")
    return tuple(notes)
