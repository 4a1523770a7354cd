"""What a model remembers: bytes for a token, for a sequence, and for so many sequences of so many tokens."""

import enum
from collections import Counter

import msgspec

from vramline.inference.architecture import Architecture, AttentionCache, LatentCache, Layer, StateCache
from vramline.inference.weights import layers_of_stages

__all__ = ["CacheNeed", "Engine", "cache_bytes_per_token", "stage_caches"]

_BLOCK = 16
"""Tokens are given room in blocks of this many."""
_UNIFORM = 1.25
"""Up to this ratio of full and windowed layers, vLLM makes groups of the larger number."""


class Engine(enum.StrEnum):
    """Which server runs the model."""

    VLLM = "vllm"
    SGLANG = "sglang"


class CacheNeed(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of cache on one GPU for the sequences that were asked for."""

    low: int
    expected: int
    high: int


def cache_bytes_per_token(
    architecture: Architecture, engine: Engine, *, number_bytes: float, tp: int
) -> float:
    """Return the bytes that one more token takes on each GPU of a single stage, inside every window.

    This is what an engine divides its pool by. vLLM puts full and windowed layers into groups of equal
    size and pads the last one; the padding is counted here.
    """
    sizes = [_layer_bytes(layer, engine, number_bytes, tp) for layer in architecture.layers]
    if engine is not Engine.VLLM:
        return sum(sizes)
    kinds = Counter(
        (layer.cache.window, size)
        for layer, size in zip(architecture.layers, sizes, strict=True)
        if isinstance(layer.cache, AttentionCache)
    )
    if len(kinds) != 2 or len({size for _, size in kinds}) != 1:
        return sum(sizes)
    group = _group_size(list(kinds.values()))
    padded = sum(-(-count // group) * group for count in kinds.values())
    return padded * next(size for _, size in kinds)


def _group_size(counts: list[int]) -> int:
    return max(counts) if max(counts) < min(counts) * _UNIFORM else min(counts)


def stage_caches(
    architecture: Architecture,
    engine: Engine,
    *,
    number_bytes: float,
    tp: int,
    pp: int,
    tokens: tuple[int, int, int],
) -> list[CacheNeed]:
    """Return the cache on each GPU of each stage for `tokens`: context, sequences, tokens in a batch."""
    stages = []
    for places in layers_of_stages(len(architecture.layers), pp):
        needs = [_layer_need(architecture.layers[p], engine, number_bytes, tp, tokens) for p in places]
        padding = _padding(architecture, engine, number_bytes, tp)
        stages.append(
            CacheNeed(
                low=round(sum(need[0] for need in needs)),
                expected=round(sum(need[1] for need in needs)),
                high=round(sum(need[2] for need in needs) * padding),
            )
        )
    return stages


def _padding(architecture: Architecture, engine: Engine, number_bytes: float, tp: int) -> float:
    """Return by how much groups of equal size are more than the layers in them."""
    plain = sum(_layer_bytes(layer, engine, number_bytes, tp) for layer in architecture.layers)
    if not plain:
        return 1.0
    return cache_bytes_per_token(architecture, engine, number_bytes=number_bytes, tp=tp) / plain


def _layer_bytes(layer: Layer, engine: Engine, number_bytes: float, tp: int) -> float:
    """Return what a layer keeps of one token on one GPU."""
    match layer.cache:
        case AttentionCache(heads, width, _):
            return max(heads / tp, 1) * width * number_bytes
        case LatentCache(_, AttentionCache(heads, width, _)) if engine is Engine.VLLM:
            return max(heads / tp, 1) * width * number_bytes
        case LatentCache(width, _):
            return width * number_bytes
        case _:
            return 0.0


def _layer_need(
    layer: Layer, engine: Engine, number_bytes: float, tp: int, tokens: tuple[int, int, int]
) -> tuple[float, float, float]:
    """Return low, expected and high bytes of one layer on one GPU."""
    context, sequences, batched = tokens
    if isinstance(layer.cache, StateCache):
        narrow = layer.cache.numbers * number_bytes
        wide = narrow + layer.cache.wide_numbers * max(4 - number_bytes, 0)
        return narrow * sequences / tp, wide * sequences / tp, wide * 1.25 * sequences / tp
    size = _layer_bytes(layer, engine, number_bytes, tp)
    window = layer.cache.window if isinstance(layer.cache, AttentionCache) else None
    whole = _in_blocks(context) * sequences * size
    if window is None or window >= context:
        return context * sequences * size, whole, whole
    kept = window * sequences * size
    if engine is Engine.SGLANG:
        return kept, whole, whole
    blocks = (_in_blocks(window) + _BLOCK) * sequences * size
    return kept, blocks, min(whole, blocks + batched * size)


def _in_blocks(tokens: int) -> int:
    return -(-tokens // _BLOCK) * _BLOCK
