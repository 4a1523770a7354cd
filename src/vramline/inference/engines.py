"""What an engine takes besides weights and cache: activations, graphs, libraries, and how that is known.

vLLM: shapes follow the code (sampler, feed-forward, fused experts), constants are measured (vLLM 0.19, H100).
SGLang: the engine's own rule for what it leaves outside its static pool; not measured.
"""

import msgspec

from vramline.inference.architecture import Architecture
from vramline.inference.caches import Engine

__all__ = ["Batch", "Span", "batch_of", "overheads"]

GIB = 2**30
MIB = 2**20

_LARGE_CARD_MIB = 70 * 1024
_SAMPLER_BYTES = 14.4
"""For each word of the vocabulary and each sequence while all of them sample: 3.6 times 4 bytes."""


class Span(msgspec.Struct, frozen=True):
    """Bytes: at least, expected, at most; and how they come about."""

    low: float
    expected: float
    high: float
    formula: str = ""


class Batch(msgspec.Struct, frozen=True):
    """How many sequences and tokens an engine works on at once."""

    sequences: int
    tokens: int
    graphs: bool = True
    """Whether the work of each batch size is captured once and replayed."""


class Overheads(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes on each GPU."""

    activation: Span
    """On the last stage, or the only one."""
    early_activation: Span
    """On the stages before it, which sample nothing."""
    non_torch: Span
    graphs: Span
    context: Span
    """Taken before the engine counts anything: the CUDA context, communicators."""


def batch_of(
    engine: Engine, card_mib: int | None, *, tp: int, sequences: int | None, tokens: int | None
) -> Batch:
    """Return the batch that is asked for, or the engine's default on a card of this size."""
    if engine is Engine.VLLM:
        large = card_mib is None or card_mib >= _LARGE_CARD_MIB
        usual = Batch(1024, 8192) if large else Batch(256, 2048)
    else:
        usual = _sglang_batch(80 * 1024 if card_mib is None else card_mib, tp)
    return Batch(sequences or usual.sequences, tokens or usual.tokens)


def _sglang_batch(card_mib: int, tp: int) -> Batch:
    """SGLang's defaults: the largest batch of its graphs, and the tokens of a prefill chunk."""
    rules = (
        (20 * 1024, 8, 8, 2048),
        (35 * 1024, 24, 80, 2048),
        (60 * 1024, 32, 160, 4096),
        (160 * 1024, 256, 512, 8192),
        (2**62, 512, 512, 16384),
    )
    few, many, tokens = next(rule[1:] for rule in rules if card_mib < rule[0])
    return Batch(few if tp < 4 else many, tokens)


def overheads(
    architecture: Architecture,
    engine: Engine,
    batch: Batch,
    *,
    number_bytes: int,
    tp: int,
    pp: int,
) -> Overheads:
    """Return what the engine takes on each GPU besides weights and cache."""
    if engine is Engine.SGLANG:
        return _sglang(batch, tp=tp, pp=pp)
    return Overheads(
        activation=_vllm_activation(architecture, batch, number_bytes, tp, last=True),
        early_activation=_vllm_activation(architecture, batch, number_bytes, tp, last=False),
        non_torch=_vllm_non_torch(tp, pp),
        graphs=_vllm_graphs(architecture, batch, pp) if batch.graphs else Span(0, 0, 0, "eager: none"),
        context=_cuda_context(tp * pp),
    )


def _vllm_activation(
    architecture: Architecture, batch: Batch, number_bytes: int, tp: int, *, last: bool
) -> Span:
    """Return the larger of what the layers take and what sampling takes; experts keep theirs besides."""
    span = _running(architecture, batch, number_bytes, tp, passes_on=not last)
    if last and architecture.generates:
        span = max(span, _sampling(architecture, batch, number_bytes), key=lambda each: each.expected)
    low, size, high, formula = 0.9 * span.low, span.expected, 1.1 * span.high, span.formula
    if architecture.moe is not None:
        moe = architecture.moe
        wide = max(2 * moe.intermediate / tp, architecture.hidden) + moe.intermediate / tp
        experts = number_bytes * batch.tokens * moe.chosen * wide
        formula += f" + experts: {number_bytes} B × {batch.tokens:,} × {moe.chosen} × {wide:,.0f}"
        size, high = size + experts, high + 2 * experts
    if architecture.towers or architecture.uncounted is not None:
        high += 0.35 * GIB
    return Span(low, size, high, formula)


def _sampling(architecture: Architecture, batch: Batch, number_bytes: int) -> Span:
    hidden, vocab = architecture.hidden, architecture.vocab
    size = _SAMPLER_BYTES * batch.sequences * vocab + 2 * number_bytes * batch.tokens * hidden
    formula = f"14.4 B × {batch.sequences:,} sequences × {vocab:,} words"
    formula += f" + {2 * number_bytes} B × {batch.tokens:,} tokens × {hidden:,}"
    return Span(size, size, size, formula)


def _running(
    architecture: Architecture, batch: Batch, number_bytes: int, tp: int, *, passes_on: bool
) -> Span:
    """A layer at work: three of its wide parts and four of its narrow ones, three more to pass on."""
    hidden, width, narrow = architecture.hidden, architecture.intermediate, 7 if passes_on else 4
    size = number_bytes * batch.tokens * (3 * width / tp + narrow * hidden)
    formula = f"{number_bytes} B × {batch.tokens:,} tokens × (3 × {width:,} ÷ {tp} + {narrow} × {hidden:,})"
    return Span(size, size, size, formula)


def _vllm_non_torch(tp: int, pp: int) -> Span:
    if tp > 1:
        return Span(
            1.9 * GIB, (2.02 + 0.03 * tp) * GIB, 2.5 * GIB, "all-reduce buffers and libraries, measured"
        )
    if pp > 1:
        return Span(0.05 * GIB, 0.1 * GIB, 0.5 * GIB, "libraries, measured")
    return Span(0.2 * GIB, 0.25 * GIB, 0.5 * GIB, "libraries, measured")


def _vllm_graphs(architecture: Architecture, batch: Batch, pp: int) -> Span:
    """Graphs for each captured batch size: something for all of them, something for each layer."""
    layers = -(-len(architecture.layers) // pp)
    largest = min(512, 2 * batch.sequences)
    sizes = 3 + min(largest, 256) // 8 + max(largest - 256, 0) // 16
    size = (0.4 + 0.0155 * layers * sizes / 51) * GIB
    formula = f"0.4 GiB + 0.0155 GiB × {layers} layers × {sizes} ÷ 51 batch sizes"
    if architecture.moe is None:
        return Span(0.65 * size, size, 1.35 * size, formula)
    return Span(0.75 * size, size + 0.3 * GIB, 1.35 * size + 0.7 * GIB, f"{formula} + 0.3 GiB for experts")


def _cuda_context(gpus: int) -> Span:
    if gpus > 1:
        return Span(1.35 * GIB, 1.55 * GIB, 2.2 * GIB, "CUDA context and communicators, measured")
    return Span(0.3 * GIB, 0.51 * GIB, 0.6 * GIB, "CUDA context, measured")


def _sglang(batch: Batch, *, tp: int, pp: int) -> Overheads:
    chunk = max(batch.tokens, 2048)
    activation = 1.5 * MIB * chunk
    captured = 2 * MIB * batch.sequences if batch.graphs else 0
    libraries = 512 * MIB + tp * pp / 8 * GIB
    working = Span(0.15 * activation, activation, 1.1 * activation, f"1.5 MiB × {chunk:,} tokens of a chunk")
    return Overheads(
        activation=working,
        early_activation=working,
        non_torch=Span(0.5 * libraries, libraries, 2 * libraries, f"512 MiB + {tp} × {pp} ÷ 8 GiB"),
        graphs=Span(
            0.3 * captured,
            captured,
            1.5 * captured,
            f"2 MiB × {batch.sequences:,} sequences" if batch.graphs else "no graphs: none",
        ),
        context=Span(0.3 * GIB, 0.51 * GIB, 0.6 * GIB, "CUDA context, measured"),
    )
