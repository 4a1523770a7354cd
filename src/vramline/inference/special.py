"""Decoders of another build: latent attention, experts in other words, other names for the usual."""

from typing import Protocol

from vramline.inference.architecture import (
    Architecture,
    AttentionCache,
    Cache,
    LatentCache,
    Layer,
    Moe,
    Split,
    Tensor,
)
from vramline.inference.blocks import (
    AttentionShape,
    LatentShape,
    attention,
    experts,
    feed_forward,
    latent_attention,
    norm,
    norms_of,
)
from vramline.inference.decoders import read_head_dim, wrap_layers
from vramline.inference.fields import Fields
from vramline.inference.hybrids import build_mllama, build_qwen3_next
from vramline.inference.windows import WindowRule, read_windows

__all__ = ["SPECIAL"]

Tensors = tuple[Tensor, ...]


# ── latent attention ─────────────────────────────────────────────────────────────────────────────


def _build_deepseek(fields: Fields, model_type: str, *, tied: bool | None) -> Architecture:
    """DeepSeek V2 and V3, Kimi: latent attention (or none of it), a few dense layers, then experts."""
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    block, cache = _deepseek_attention(fields, hidden, heads)
    fields.skip("num_nextn_predict_layers", "q_lora_rank", "use_mla")
    width, count = fields.maybe_whole("moe_intermediate_size"), fields.maybe_whole("n_routed_experts")
    intermediate = fields.whole("intermediate_size")
    dense = feed_forward(hidden, intermediate)
    sparse, moe, first = dense, None, 0
    if count is not None and width is not None:
        scored = fields.text("topk_method") == "noaux_tc"
        sparse = experts(hidden, width, count, router_bias=scored)
        shared = fields.maybe_whole("n_shared_experts")
        if shared:
            sparse = (*sparse, *feed_forward(hidden, width * shared, prefix="mlp.shared_experts"))
        first = fields.maybe_whole("first_k_dense_replace") or 0
        moe = Moe(width, fields.whole("num_experts_per_tok"))
    count_layers, step = fields.whole("num_hidden_layers"), fields.whole("moe_layer_freq", default=1)
    layers = tuple(
        Layer(
            (*norms_of(hidden), *block, *(sparse if number >= first and number % step == 0 else dense)), cache
        )
        for number in range(count_layers)
    )
    return wrap_layers(
        fields,
        Architecture(
            model_type=model_type,
            hidden=hidden,
            intermediate=intermediate if first or moe is None else 0,
            vocab=fields.whole("vocab_size"),
            heads=heads,
            kv_heads=heads,
            layers=layers,
            embedding=(),
            head=(norm("norm", hidden),),
            tied=fields.flag("tie_word_embeddings", default=bool(tied)),
            moe=moe,
        ),
    )


def _deepseek_attention(fields: Fields, hidden: int, heads: int) -> tuple[Tensors, Cache]:
    rank = fields.maybe_whole("kv_lora_rank")
    if rank is None:
        fields.skip("num_key_value_heads")
        shape = AttentionShape(hidden=hidden, heads=heads, kv_heads=heads, head_dim=hidden // heads)
        return attention(shape), AttentionCache(heads, 2 * (hidden // heads))
    rope = fields.whole("qk_rope_head_dim")
    latent = LatentShape(
        hidden=hidden,
        heads=heads,
        q_rank=fields.maybe_whole("q_lora_rank"),
        kv_rank=rank,
        nope=fields.whole("qk_nope_head_dim"),
        rope=rope,
        value=fields.whole("v_head_dim"),
    )
    return latent_attention(latent), LatentCache(rank + rope)


def _build_minicpm3(fields: Fields, model_type: str, *, tied: bool | None) -> Architecture:
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    rank, rope = fields.whole("kv_lora_rank"), fields.whole("qk_rope_head_dim")
    nope, intermediate = fields.whole("qk_nope_head_dim"), fields.whole("intermediate_size")
    latent = LatentShape(
        hidden=hidden,
        heads=heads,
        q_rank=fields.whole("q_lora_rank"),
        kv_rank=rank,
        nope=nope,
        rope=rope,
        value=fields.whole("v_head_dim", default=hidden // heads),
    )
    cache = LatentCache(rank + rope, expanded=AttentionCache(heads, 2 * (nope + rope)))
    layer = Layer((*norms_of(hidden), *latent_attention(latent), *feed_forward(hidden, intermediate)), cache)
    return wrap_layers(
        fields,
        Architecture(
            model_type=model_type,
            hidden=hidden,
            intermediate=intermediate,
            vocab=fields.whole("vocab_size"),
            heads=heads,
            kv_heads=heads,
            layers=(layer,) * fields.whole("num_hidden_layers"),
            embedding=(),
            head=(norm("norm", hidden),),
            tied=fields.flag("tie_word_embeddings", default=True if tied is None else tied),
        ),
    )


# ── experts in other words ───────────────────────────────────────────────────────────────────────


def _build_gpt_oss(fields: Fields, model_type: str, *, tied: bool | None) -> Architecture:
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    kv_heads, head_dim = fields.whole("num_key_value_heads"), fields.whole("head_dim")
    width, count = fields.whole("intermediate_size"), fields.whole("num_local_experts")
    number = fields.whole("num_hidden_layers")
    biased = fields.flag("attention_bias", default=True)
    block = (
        *attention(
            AttentionShape(
                hidden=hidden,
                heads=heads,
                kv_heads=kv_heads,
                head_dim=head_dim,
                qkv_bias=biased,
                o_bias=biased,
            )
        ),
        Tensor("self_attn.sinks", heads, split=Split.OUT),
        *experts(hidden, width, count, bias=True, router_bias=True),
    )
    windows = read_windows(fields, number, WindowRule.ALTERNATE)
    return wrap_layers(
        fields,
        Architecture(
            model_type=model_type,
            hidden=hidden,
            intermediate=0,
            vocab=fields.whole("vocab_size"),
            heads=heads,
            kv_heads=kv_heads,
            layers=tuple(
                Layer((*norms_of(hidden), *block), AttentionCache(kv_heads, 2 * head_dim, window))
                for window in windows
            ),
            embedding=(),
            head=(norm("norm", hidden),),
            tied=fields.flag("tie_word_embeddings", default=bool(tied)),
            moe=Moe(width, fields.whole("num_experts_per_tok", "experts_per_token")),
        ),
    )


def _build_llama4(fields: Fields, model_type: str, *, tied: bool | None) -> Architecture:
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    kv_heads, head_dim = fields.whole("num_key_value_heads"), read_head_dim(fields, hidden, heads)
    width, count = fields.whole("intermediate_size"), fields.whole("num_local_experts")
    dense_width, step = fields.whole("intermediate_size_mlp"), fields.whole("interleave_moe_layer_step")
    biased = fields.flag("attention_bias", default=False)
    block = attention(
        AttentionShape(
            hidden=hidden,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            qkv_bias=biased,
            o_bias=biased,
        )
    )
    sparse = (*experts(hidden, width, count), *feed_forward(hidden, width, prefix="mlp.shared_expert"))
    dense = feed_forward(hidden, dense_width)
    number = fields.whole("num_hidden_layers")
    chunk, ropes = fields.maybe_whole("attention_chunk_size"), fields.numbers("no_rope_layers")
    interval = fields.whole("nope_layer_interval", "no_rope_layer_interval", default=4)
    fields.skip("layer_types")
    layers = []
    for place in range(number):
        rope = bool(ropes[place]) if ropes else (place + 1) % interval != 0
        feed = sparse if (place + 1) % step == 0 else dense
        cache = AttentionCache(kv_heads, 2 * head_dim, chunk if rope else None)
        layers.append(Layer((*norms_of(hidden), *block, *feed), cache))
    return wrap_layers(
        fields,
        Architecture(
            model_type=model_type,
            hidden=hidden,
            intermediate=dense_width if step > 1 else width,
            vocab=fields.whole("vocab_size"),
            heads=heads,
            kv_heads=kv_heads,
            layers=tuple(layers),
            embedding=(),
            head=(norm("norm", hidden),),
            tied=fields.flag("tie_word_embeddings", default=bool(tied)),
            moe=Moe(width, fields.whole("num_experts_per_tok")),
        ),
    )


def _build_dbrx(fields: Fields, model_type: str, *, tied: bool | None) -> Architecture:
    hidden, heads = fields.whole("d_model"), fields.whole("n_heads")
    inner, feeds = fields.child("attn_config"), fields.child("ffn_config")
    if inner is None or feeds is None:
        raise fields.wrong("attn_config", None, "is missing", "attn_config and ffn_config")
    kv_heads, width = inner.whole("kv_n_heads"), feeds.whole("ffn_hidden_size")
    shape = AttentionShape(hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=hidden // heads)
    sparse = experts(hidden, width, feeds.whole("moe_num_experts"), prefix="ffn")
    layer = Layer(
        (*norms_of(hidden), *attention(shape), *sparse), AttentionCache(kv_heads, 2 * (hidden // heads))
    )
    return wrap_layers(
        fields,
        Architecture(
            model_type=model_type,
            hidden=hidden,
            intermediate=0,
            vocab=fields.whole("vocab_size"),
            heads=heads,
            kv_heads=kv_heads,
            layers=(layer,) * fields.whole("n_layers"),
            embedding=(),
            head=(norm("norm_f", hidden),),
            tied=fields.flag("tie_word_embeddings", default=bool(tied)),
            moe=Moe(width, feeds.whole("moe_top_k")),
        ),
    )


# ── other names for the usual build ──────────────────────────────────────────────────────────────


def _build_chatglm(fields: Fields, model_type: str, *, tied: bool | None) -> Architecture:
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    grouped = fields.flag("multi_query_attention", default=False)
    kv_heads = fields.whole("multi_query_group_num") if grouped else heads
    return _build_plain(
        fields,
        model_type,
        AttentionShape(
            hidden=hidden,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=read_head_dim(fields, hidden, heads),
            qkv_bias=fields.flag("add_qkv_bias", default=False)
            or fields.flag("add_bias_linear", default=False),
            o_bias=fields.flag("add_bias_linear", default=False),
        ),
        feed_forward(
            hidden, fields.whole("ffn_hidden_size"), bias=fields.flag("add_bias_linear", default=False)
        ),
        tied=bool(tied),
    )


def _build_qwen(fields: Fields, model_type: str, *, tied: bool | None) -> Architecture:
    """The first Qwen: its intermediate size is that of gate and up together."""
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    shape = AttentionShape(
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=read_head_dim(fields, hidden, heads),
        qkv_bias=True,
    )
    feed = feed_forward(hidden, fields.whole("intermediate_size") // 2)
    return _build_plain(fields, model_type, shape, feed, tied=bool(tied))


def _build_phi3small(fields: Fields, model_type: str, *, tied: bool | None) -> Architecture:
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    shape = AttentionShape(
        hidden=hidden,
        heads=heads,
        kv_heads=fields.whole("num_key_value_heads"),
        head_dim=hidden // heads,
        qkv_bias=True,
        o_bias=True,
        norm_bias=True,
    )
    feed = feed_forward(hidden, fields.whole("ff_intermediate_size"), bias=True)
    return _build_plain(fields, model_type, shape, feed, tied=True if tied is None else tied)


def _build_plain(
    fields: Fields, model_type: str, shape: AttentionShape, feed: Tensors, *, tied: bool
) -> Architecture:
    """Build equal layers of attention and feed-forward whose sizes were read already."""
    layer = Layer(
        (*norms_of(shape.hidden, bias=shape.norm_bias), *attention(shape), *feed),
        AttentionCache(shape.kv_heads, 2 * shape.head_dim),
    )
    return wrap_layers(
        fields,
        Architecture(
            model_type=model_type,
            hidden=shape.hidden,
            intermediate=feed[0].rows,
            vocab=fields.whole("padded_vocab_size", "vocab_size"),
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            layers=(layer,) * fields.whole("num_hidden_layers", "num_layers"),
            embedding=(),
            head=(norm("norm", shape.hidden, bias=shape.norm_bias),),
            tied=fields.flag("tie_word_embeddings", default=tied),
        ),
    )


class Builder(Protocol):
    """Builds a model of one `model_type`; `tied` is what an outer config says of the head."""

    def __call__(self, fields: Fields, model_type: str, *, tied: bool | None) -> Architecture: ...


SPECIAL: dict[str, Builder] = {
    "deepseek_v2": _build_deepseek,
    "deepseek_v3": _build_deepseek,
    "kimi_k2": _build_deepseek,
    "minicpm3": _build_minicpm3,
    "gpt_oss": _build_gpt_oss,
    "llama4_text": _build_llama4,
    "dbrx": _build_dbrx,
    "chatglm": _build_chatglm,
    "qwen": _build_qwen,
    "phi3small": _build_phi3small,
    "mllama_text_model": build_mllama,
    "qwen3_next": build_qwen3_next,
    "qwen3_5_text": build_qwen3_next,
    "qwen3_5_moe_text": build_qwen3_next,
}
"""By `model_type`."""
