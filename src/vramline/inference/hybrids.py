"""Decoders with layers of two kinds: some look at an image, or keep a state instead of keys and values."""

import msgspec

from vramline.inference.architecture import (
    Architecture,
    AttentionCache,
    Layer,
    Moe,
    Split,
    StateCache,
    Tensor,
)
from vramline.inference.blocks import AttentionShape, attention, experts, feed_forward, norm, norms_of
from vramline.inference.decoders import wrap_layers
from vramline.inference.fields import Fields

__all__ = ["build_mllama", "build_qwen3_next"]

Tensors = tuple[Tensor, ...]


def build_mllama(fields: Fields, model_type: str, *, tied: bool | None) -> Architecture:
    """Llama 3.2 Vision: some layers look at the image instead of the text."""
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    kv_heads, width = fields.whole("num_key_value_heads"), fields.whole("intermediate_size")
    vocab, head_dim = fields.whole("vocab_size"), hidden // heads
    crossing = set(fields.numbers("cross_attention_layers") or ())
    shape = AttentionShape(hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    own = (*norms_of(hidden), *attention(shape), *feed_forward(hidden, width))
    gates = (norm("cross_attn_attn_gate", 1), norm("cross_attn_mlp_gate", 1))
    norms = (norm("cross_attn.q_norm", head_dim), norm("cross_attn.k_norm", head_dim))
    cache = AttentionCache(kv_heads, 2 * head_dim)
    image = StateCache(_IMAGE_TOKENS * kv_heads * 2 * head_dim)
    inner = wrap_layers(
        fields,
        Architecture(
            model_type=model_type,
            hidden=hidden,
            intermediate=width,
            vocab=vocab,
            heads=heads,
            kv_heads=kv_heads,
            layers=tuple(
                Layer((*own, *gates, *norms), image) if number in crossing else Layer(own, cache)
                for number in range(fields.whole("num_hidden_layers"))
            ),
            embedding=(),
            head=(norm("norm", hidden),),
            tied=fields.flag("tie_word_embeddings", default=bool(tied)),
            notes=("each sequence is counted with one image of four tiles in the cross-attention layers",),
        ),
    )
    return _with_image_rows(inner)


_IMAGE_TOKENS = 4 * (40 * 40 + 1)
"""Four tiles of 560 × 560 pixels in patches of 14 × 14, and one class token each."""


def _with_image_rows(inner: Architecture) -> Architecture:
    """The embedding of Llama 3.2 Vision has eight rows more than the head."""
    rows = Tensor("model.embed_tokens", inner.vocab + 8, inner.hidden, Split.VOCAB)
    return msgspec.structs.replace(inner, embedding=(rows,))


def build_qwen3_next(fields: Fields, model_type: str, *, tied: bool | None) -> Architecture:
    """Qwen3-Next and Qwen3.5: most layers keep a state instead of keys and values."""
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    kv_heads, head_dim = fields.whole("num_key_value_heads"), fields.whole("head_dim")
    number = fields.whole("num_hidden_layers")
    full = attention(
        AttentionShape(
            hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=head_dim, qk_norm="head", gated=True
        )
    )
    linear, state = _linear_attention(fields, hidden)
    feed, moe, width = _next_feed(fields, hidden)
    layers = tuple(
        Layer((*norms_of(hidden), *full, *feed), AttentionCache(kv_heads, 2 * head_dim))
        if is_full
        else Layer((*norms_of(hidden), *linear, *feed), state)
        for is_full in _full_layers(fields, number)
    )
    return wrap_layers(
        fields,
        Architecture(
            model_type=model_type,
            hidden=hidden,
            intermediate=width,
            vocab=fields.whole("vocab_size"),
            heads=heads,
            kv_heads=kv_heads,
            layers=layers,
            embedding=(),
            head=(norm("norm", hidden),),
            tied=fields.flag("tie_word_embeddings", default=bool(tied)),
            moe=moe,
        ),
    )


def _full_layers(fields: Fields, number: int) -> list[bool]:
    kinds = fields.words("layer_types")
    if kinds is None:
        interval = fields.whole("full_attention_interval")
        return [(place + 1) % interval == 0 for place in range(number)]
    unknown = sorted(set(kinds) - {"full_attention", "linear_attention"})
    if unknown or len(kinds) != number:
        raise fields.wrong(
            "layer_types",
            unknown[0] if unknown else len(kinds),
            "is not understood",
            f"{number} words, full_attention or linear_attention",
        )
    return [kind == "full_attention" for kind in kinds]


def _linear_attention(fields: Fields, hidden: int) -> tuple[Tensors, StateCache]:
    """Return the tensors of one layer of linear attention, and its state."""
    keys, values = fields.whole("linear_num_key_heads"), fields.whole("linear_num_value_heads")
    key_dim, value_dim = fields.whole("linear_key_head_dim"), fields.whole("linear_value_head_dim")
    kernel = fields.whole("linear_conv_kernel_dim")
    all_keys, all_values = keys * key_dim, values * value_dim
    mixed = 2 * all_keys + all_values
    tensors = (
        Tensor("linear_attn.in_proj_qkvz", mixed + all_values, hidden, Split.OUT, linear=True),
        Tensor("linear_attn.in_proj_ba", 2 * values, hidden, Split.OUT),
        Tensor("linear_attn.conv1d", mixed, kernel, Split.OUT),
        Tensor("linear_attn.dt_bias", values, split=Split.OUT),
        Tensor("linear_attn.A_log", values, split=Split.OUT),
        norm("linear_attn.norm", value_dim),
        Tensor("linear_attn.out_proj", hidden, all_values, Split.IN, linear=True),
    )
    recurrent = values * key_dim * value_dim
    return tensors, StateCache(mixed * (kernel - 1) + recurrent, wide_numbers=recurrent)


def _next_feed(fields: Fields, hidden: int) -> tuple[Tensors, Moe | None, int]:
    count = fields.maybe_whole("num_experts")
    if count is None:
        width = fields.whole("intermediate_size")
        return feed_forward(hidden, width), None, width
    if fields.numbers("mlp_only_layers") or fields.whole("decoder_sparse_step", default=1) != 1:
        raise fields.wrong("mlp_only_layers", None, "is not understood", "experts in every layer")
    width = fields.whole("moe_intermediate_size")
    shared = fields.whole("shared_expert_intermediate_size")
    feed = (
        *experts(hidden, width, count),
        *feed_forward(hidden, shared, prefix="mlp.shared_expert"),
        Tensor("mlp.shared_expert_gate", 1, hidden),
    )
    return feed, Moe(width, fields.whole("num_experts_per_tok")), shared
