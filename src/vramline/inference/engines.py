"""What an engine takes besides weights and cache: activations, graphs, libraries, and how that is known.

vLLM: shapes follow from the code (sampler, feed-forward, experts, what pieces of a graph hand on), and a
few constants are measured (`Constants`). SGLang: the engine's own rule for what it leaves outside its static
pool; not measured.
"""

import re

import msgspec

from vramline.errors import RequestError
from vramline.inference.architecture import Architecture, AttentionCache, LatentCache, Layer
from vramline.inference.caches import Engine
from vramline.inference.weights import layers_of_stages

__all__ = [
    "MEASURED",
    "Batch",
    "Constants",
    "Span",
    "batch_of",
    "constants_of",
    "graph_pool",
    "overheads",
    "read_version",
]

GIB = 2**30
MIB = 2**20

_LARGE_CARD_MIB = 70 * 1024
_SMALL_BATCH_CARDS = re.compile(r"a100", re.IGNORECASE)
"""Large cards that get the batch of small ones from vLLM."""
_SAMPLERS = (((0, 8), 4.0), ((0, 17), 39.0))
"""`Constants.sampler` of vLLM before these versions."""
_MOST_CAPTURED = 512
_CAPTURED_SIZES = 51
"""Batch sizes that are captured at the usual settings."""


class Constants(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of vLLM 0.19 on H100, in GiB unless it is said.

    `vramline bench estimate` fits them again, with each model left out in turn.
    """

    sampler: float = 14.4
    """Bytes for each word of the vocabulary and each sequence while all of them sample: 3.6 times 4."""
    graphs: float = 0.36
    """All graphs together, besides the next two."""
    layer_graphs: float = 0.0074
    """What the driver keeps of the graphs of one layer, for all batch sizes."""
    expert_graphs: float = 0.45
    """More of that in models with experts."""
    libraries: float = 0.25
    """Kernels and workspaces that are loaded while it runs, on one GPU."""
    all_reduce: float = 2.07
    """The same with the buffers of two GPUs that are linked."""
    peer: float = 0.03
    """For each further GPU."""
    context: float = 0.51
    """The CUDA context."""
    links: float = 0.98
    """Communicators among several GPUs."""
    expert_links: float = 0.5
    """One communicator more, where experts are dealt out."""


MEASURED = Constants()


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


def read_version(text: str) -> tuple[int, int] | None:
    """Read an engine's version, such as 0.16.2; None: none is given, and the newest known one is meant.

    >>> read_version("v0.16.2"), read_version("")
    ((0, 16), None)
    """
    if not text:
        return None
    found = re.fullmatch(r"v?(\d{1,4})\.(\d{1,4})(?:[.+a-z-].*)?", text.strip(), re.ASCII)
    if found is None:
        raise RequestError(
            subject="estimate",
            field="--engine-version",
            value=text,
            problem="is no version",
            accepted="0.19 or 0.16.2",
        )
    return int(found[1]), int(found[2])


def batch_of(
    engine: Engine,
    card_mib: int | None,
    *,
    tp: int,
    sequences: int | None,
    tokens: int | None,
    card_model: str = "",
) -> Batch:
    """Return the batch that is asked for, or the engine's default on a card of this size and model."""
    if engine is Engine.VLLM:
        large = card_mib is None or card_mib >= _LARGE_CARD_MIB
        large = large and not _SMALL_BATCH_CARDS.search(card_model)
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
    degrees: tuple[int, int],
    constants: Constants = MEASURED,
) -> Overheads:
    """Return what the engine takes on each GPU besides weights and cache; `degrees` are tp and pp."""
    tp, pp = degrees
    if engine is Engine.SGLANG:
        return _sglang(batch, tp=tp, pp=pp)
    return Overheads(
        activation=_vllm_activation(architecture, batch, number_bytes, tp, constants.sampler),
        early_activation=_vllm_activation(architecture, batch, number_bytes, tp, None),
        non_torch=_vllm_non_torch(tp, pp, constants),
        graphs=_vllm_graphs(architecture, batch, degrees, constants)
        if batch.graphs
        else Span(0, 0, 0, "eager: none"),
        context=_cuda_context(tp, pp, constants, experts=architecture.moe is not None),
    )


def constants_of(version: tuple[int, int] | None) -> Constants:
    """Return the constants of a version of vLLM; None: the newest that was measured."""
    for before, sampler in _SAMPLERS:
        if version is not None and version < before:
            return msgspec.structs.replace(MEASURED, sampler=sampler)
    return MEASURED


def _vllm_activation(
    architecture: Architecture, batch: Batch, number_bytes: int, tp: int, sampler: float | None
) -> Span:
    """Return the larger of what the layers take and what sampling takes; experts keep theirs besides.

    `sampler` is None on a stage that samples nothing and passes on what it made.
    """
    span = _running(architecture, batch, number_bytes, tp, passes_on=sampler is None)
    if sampler is not None and architecture.generates:
        sampling = _sampling(architecture, batch, number_bytes, sampler)
        span = max(span, sampling, key=lambda each: each.expected)
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


def _sampling(architecture: Architecture, batch: Batch, number_bytes: int, sampler: float) -> Span:
    hidden, vocab = architecture.hidden, architecture.vocab
    size = sampler * batch.sequences * vocab + 2 * number_bytes * batch.tokens * hidden
    formula = f"{sampler:g} B × {batch.sequences:,} sequences × {vocab:,} words"
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


def _vllm_non_torch(tp: int, pp: int, constants: Constants) -> Span:
    if tp > 1:
        size = (constants.all_reduce + constants.peer * (tp - 2)) * GIB
        return Span(0.2 * GIB, size, 1.2 * size, "all-reduce buffers of linked GPUs and libraries, measured")
    if pp > 1:
        return Span(0.05 * GIB, 0.1 * GIB, 0.5 * GIB, "libraries, measured")
    size = constants.libraries * GIB
    return Span(0.8 * size, size, 2 * size, "libraries, measured")


def graph_pool(architecture: Architecture, batch: Batch, tp: int, pp: int) -> float:
    """Return the bytes that pieces of captured layers hand on to each other, at the largest batch size.

    A layer is captured in pieces, with attention between them: queries, keys and values go in, the result
    comes out. These stay where they were captured.
    """
    places = max(layers_of_stages(len(architecture.layers), pp), key=len)
    widths = (_handed_on(architecture.layers[place], architecture, tp) for place in places)
    return 2.0 * _captured(batch) * sum(widths)


def _captured(batch: Batch) -> int:
    return min(_MOST_CAPTURED, 2 * batch.sequences)


def _handed_on(layer: Layer, architecture: Architecture, tp: int) -> float:
    """Return how many numbers of one token are kept between the pieces of a layer, on one GPU."""
    if isinstance(layer.cache, AttentionCache):
        queries = architecture.heads * layer.cache.width / 2 / tp
        return 2 * queries + max(layer.cache.heads / tp, 1) * layer.cache.width
    queries = sum(each.rows for each in layer.tensors if each.name.endswith(_QUERIES)) / tp
    results = sum(each.columns for each in layer.tensors if each.name.endswith(_RESULTS)) / tp
    latent = layer.cache.width if isinstance(layer.cache, LatentCache) else 0
    return queries + results + latent


_QUERIES = ("q_proj", "q_b_proj", "in_proj_qkvz")
_RESULTS = ("o_proj", "out_proj")


def _vllm_graphs(
    architecture: Architecture, batch: Batch, degrees: tuple[int, int], constants: Constants
) -> Span:
    """Graphs for each captured batch size: something for all of them, and what their pieces hand on."""
    largest = _captured(batch)
    sizes = 3 + min(largest, 256) // 8 + max(largest - 256, 0) // 16
    pool = graph_pool(architecture, batch, *degrees)
    layers = -(-len(architecture.layers) // degrees[1])
    fixed = (constants.graphs + constants.layer_graphs * layers) * sizes / _CAPTURED_SIZES * GIB
    formula = f"({constants.graphs:g} + {constants.layer_graphs:g} × {layers} layers) GiB"
    formula += f" × {sizes} ÷ {_CAPTURED_SIZES} batch sizes"
    formula += f" + 2 B × {largest:,} × {pool / 2 / max(largest, 1):,.0f} between pieces of layers"
    size = fixed + pool
    if architecture.moe is None:
        return Span(0.7 * size, size, 1.3 * size, formula)
    more = constants.expert_graphs * GIB
    formula += f" + {constants.expert_graphs:g} GiB for experts"
    return Span(0.8 * size, size + more, 1.2 * size + 2.2 * more, formula)


def _cuda_context(tp: int, pp: int, constants: Constants, *, experts: bool) -> Span:
    if tp * pp == 1:
        size = constants.context * GIB
        return Span(0.6 * size, size, 1.2 * size, "CUDA context, measured")
    size = (constants.context + constants.links) * GIB
    if not experts:
        return Span(0.6 * size, size, 1.4 * size, "CUDA context and communicators, measured")
    more = constants.expert_links * GIB
    return Span(
        0.6 * size, size + more, 1.4 * (size + more), "CUDA context and communicators, experts' too, measured"
    )


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
        context=Span(0.3 * GIB, 0.51 * GIB, 0.6 * GIB, "CUDA context, as measured with vLLM"),
    )
