"""Decoders of the usual build: attention and feed-forward in every layer, and what each family adds."""

from typing import NamedTuple

import msgspec

from vramline.inference.architecture import Architecture, AttentionCache, Layer, Moe, Split, Tensor
from vramline.inference.blocks import AttentionShape, attention, experts, feed_forward, norm
from vramline.inference.fields import Fields
from vramline.inference.rope import count_rope_numbers
from vramline.inference.windows import WindowRule, read_windows

__all__ = ["FAMILIES", "Family", "build_decoder", "read_head_dim", "wrap_layers"]


class Family(NamedTuple):
    """What sets a family apart from the plain build: RMS norms, a gated feed-forward part, no biases."""

    tied: bool = False
    """Whether embedding and head share weights where the config does not say."""
    norms: int = 2
    """Norms in a layer."""
    norm_bias: bool = False
    qkv_bias: str = ""
    """Name of the flag that switches the bias on; "always": it is there."""
    o_bias: str = ""
    mlp_bias: str = ""
    gated: bool = True
    qk_norm: str = ""
    qk_norm_flag: str = ""
    """Name of the flag that switches the norm on; empty: it is there."""
    head_bias: str = ""
    windows: WindowRule = WindowRule.NONE
    experts: str = ""
    """Where the config describes experts: local, qwen or routed; empty: there are none."""
    defaults: tuple[tuple[str, int], ...] = ()
    """Fields that published configs leave out, with the defaults of the model's class."""


_LLAMA_SIZES = (
    ("hidden_size", 4096),
    ("intermediate_size", 11008),
    ("num_hidden_layers", 32),
    ("num_attention_heads", 32),
    ("vocab_size", 32000),
)
_GEMMA3_SIZES = (
    ("hidden_size", 2304),
    ("intermediate_size", 9216),
    ("num_hidden_layers", 26),
    ("num_attention_heads", 8),
    ("num_key_value_heads", 4),
    ("head_dim", 256),
    ("vocab_size", 262208),
    ("sliding_window", 4096),
    ("max_position_embeddings", 131072),
)

FAMILIES: dict[str, Family] = {
    "llama": Family(
        qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias", defaults=_LLAMA_SIZES
    ),
    "mistral": Family(windows=WindowRule.ALL),
    "ministral": Family(windows=WindowRule.ALL),
    "mixtral": Family(windows=WindowRule.ALL, experts="local"),
    "qwen2": Family(qkv_bias="always", windows=WindowRule.FLAGGED),
    "qwen2_moe": Family(qkv_bias="always", windows=WindowRule.FLAGGED, experts="qwen"),
    "qwen3": Family(
        qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="head", windows=WindowRule.FLAGGED
    ),
    "qwen3_moe": Family(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm="head",
        windows=WindowRule.FLAGGED,
        experts="qwen",
    ),
    "gemma": Family(
        tied=True, qkv_bias="attention_bias", o_bias="attention_bias", defaults=(("head_dim", 256),)
    ),
    "gemma2": Family(
        tied=True,
        norms=4,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=WindowRule.ALTERNATE,
        defaults=(("head_dim", 256), ("sliding_window", 4096)),
    ),
    "gemma3_text": Family(
        tied=True,
        norms=4,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm="head",
        windows=WindowRule.EVERY_SIXTH_FULL,
        defaults=_GEMMA3_SIZES,
    ),
    "phi3": Family(windows=WindowRule.ALL),
    "phi": Family(
        norms=1,
        norm_bias=True,
        qkv_bias="always",
        o_bias="always",
        mlp_bias="always",
        gated=False,
        head_bias="always",
    ),
    "phimoe": Family(
        norm_bias=True,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        head_bias="lm_head_bias",
        windows=WindowRule.ALL,
        experts="local",
    ),
    "cohere": Family(
        tied=True,
        norms=1,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm="all",
        qk_norm_flag="use_qk_norm",
    ),
    "cohere2": Family(
        tied=True,
        norms=1,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        windows=WindowRule.EVERY_FOURTH_FULL,
    ),
    "stablelm": Family(norm_bias=True, qkv_bias="use_qkv_bias"),
    "baichuan": Family(),
    "xverse": Family(),
    "internlm2": Family(qkv_bias="bias", o_bias="bias"),
    "internlm3": Family(qkv_bias="qkv_bias", o_bias="bias", mlp_bias="bias"),
    "exaone": Family(),
    "granite": Family(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias"),
    "granitemoe": Family(qkv_bias="attention_bias", o_bias="attention_bias", experts="local"),
    "olmo2": Family(qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="all"),
    "olmoe": Family(qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="all", experts="qwen"),
    "starcoder2": Family(
        tied=True,
        norm_bias=True,
        qkv_bias="use_bias",
        o_bias="use_bias",
        mlp_bias="use_bias",
        gated=False,
        windows=WindowRule.ALL,
    ),
    "glm": Family(qkv_bias="attention_bias"),
    "glm4": Family(norms=4, qkv_bias="attention_bias"),
    "glm4_moe": Family(
        qkv_bias="attention_bias", qk_norm="head", qk_norm_flag="use_qk_norm", experts="routed"
    ),
    "minicpm": Family(tied=True),
}
"""By `model_type`."""


class _Sizes(NamedTuple):
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    layers: int


def read_head_dim(fields: Fields, hidden: int, heads: int) -> int:
    """Return the width of a head: the config's own word for it, or an equal part of the hidden size."""
    told = fields.maybe_whole("head_dim", "kv_channels")
    if told is not None:
        return told
    if fields.has_default("head_dim"):
        return fields.whole("head_dim")
    if hidden % heads:
        raise fields.wrong("num_attention_heads", heads, f"does not divide hidden_size {hidden}", "head_dim")
    return hidden // heads


def build_decoder(fields: Fields, model_type: str, *, tied: bool | None = None) -> Architecture:
    """Build a model of one of `FAMILIES`; `tied` is what an outer config says of the head."""
    family = FAMILIES[model_type]
    fields.with_defaults(dict(family.defaults))
    sizes = _read_sizes(fields)
    if fields.flag("qk_layernorm", default=False):
        raise fields.wrong("qk_layernorm", True, "is not understood", "false")  # noqa: FBT003 — a value
    windows = read_windows(fields, sizes.layers, family.windows)
    block = attention(
        AttentionShape(
            hidden=sizes.hidden,
            heads=sizes.heads,
            kv_heads=sizes.kv_heads,
            head_dim=sizes.head_dim,
            qkv_bias=_is_on(fields, family.qkv_bias),
            o_bias=_is_on(fields, family.o_bias),
            qk_norm=family.qk_norm if _is_on(fields, family.qk_norm_flag or "always") else "",
        )
    )
    norms = tuple(
        norm(f"norm_{number}", sizes.hidden, bias=family.norm_bias) for number in range(family.norms)
    )
    feeds, moe = _read_feeds(fields, family, sizes)
    layers = tuple(
        Layer((*norms, *block, *feed), AttentionCache(sizes.kv_heads, 2 * sizes.head_dim, window))
        for feed, window in zip(feeds, windows, strict=True)
    )
    own = fields.flag("tie_word_embeddings", default=family.tied if tied is None else tied)
    return wrap_layers(
        fields,
        Architecture(
            model_type=model_type,
            hidden=sizes.hidden,
            intermediate=sizes.intermediate,
            vocab=sizes.vocab,
            heads=sizes.heads,
            kv_heads=sizes.kv_heads,
            layers=layers,
            embedding=(),
            head=(norm("norm", sizes.hidden, bias=family.norm_bias),),
            tied=own,
            moe=moe,
        ),
        head_bias=_is_on(fields, family.head_bias),
    )


def wrap_layers(fields: Fields, inner: Architecture, *, head_bias: bool = False) -> Architecture:
    """Put embedding and head around the layers, and read what every config says of itself."""
    embedding = Tensor("model.embed_tokens", inner.vocab, inner.hidden, Split.VOCAB)
    head = inner.head
    if not inner.tied:
        head = (*head, Tensor("lm_head", inner.vocab, inner.hidden, Split.VOCAB, bias=head_bias))
    longest = fields.maybe_whole(
        "max_position_embeddings", "seq_length", "max_seq_len", "n_positions", "model_max_length"
    ) or fields.default_of("max_position_embeddings")
    return msgspec.structs.replace(
        inner,
        embedding=(embedding,),
        head=head,
        max_context=longest,
        rope_numbers=count_rope_numbers(fields, inner, longest),
        dtype=fields.text("torch_dtype", "dtype"),
    )


def _is_on(fields: Fields, name: str) -> bool:
    return name == "always" or (bool(name) and fields.flag(name, default=False))


def _read_sizes(fields: Fields) -> _Sizes:
    hidden = fields.whole("hidden_size", "n_embd", "d_model")
    heads = fields.whole("num_attention_heads", "n_head", "n_heads")
    kv_heads = fields.whole(
        "num_key_value_heads", default=None if fields.has_default("num_key_value_heads") else heads
    )
    return _Sizes(
        hidden=hidden,
        intermediate=fields.whole("intermediate_size", "ffn_dim", "n_inner"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=read_head_dim(fields, hidden, heads),
        vocab=fields.whole("vocab_size", "padded_vocab_size"),
        layers=fields.whole("num_hidden_layers", "num_layers", "n_layer", "n_layers"),
    )


def _read_feeds(fields: Fields, family: Family, sizes: _Sizes) -> tuple[list[tuple[Tensor, ...]], Moe | None]:
    """Return the feed-forward part of every layer, and what the experts take while they work."""
    dense = feed_forward(
        sizes.hidden, sizes.intermediate, gated=family.gated, bias=_is_on(fields, family.mlp_bias)
    )
    match family.experts:
        case "local":
            count = fields.whole("num_local_experts", "num_experts")
            chosen = fields.whole("num_experts_per_tok")
            sparse = experts(sizes.hidden, sizes.intermediate, count)
            return [sparse] * sizes.layers, Moe(sizes.intermediate, chosen)
        case "qwen":
            return _read_qwen_experts(fields, sizes, dense)
        case "routed":
            return _read_routed_experts(fields, sizes, dense)
        case _:
            return [dense] * sizes.layers, None


def _read_qwen_experts(
    fields: Fields, sizes: _Sizes, dense: tuple[Tensor, ...]
) -> tuple[list[tuple[Tensor, ...]], Moe]:
    count = fields.whole("num_experts")
    width = fields.whole("moe_intermediate_size", default=sizes.intermediate)
    sparse = experts(sizes.hidden, width, count)
    shared = fields.maybe_whole("shared_expert_intermediate_size")
    if shared is not None:
        sparse = (
            *sparse,
            *feed_forward(sizes.hidden, shared, prefix="mlp.shared_expert"),
            Tensor("mlp.shared_expert_gate", 1, sizes.hidden),
        )
    step = fields.whole("decoder_sparse_step", default=1)
    dense_layers = set(fields.numbers("mlp_only_layers") or ())
    feeds = [
        sparse if number not in dense_layers and (number + 1) % step == 0 else dense
        for number in range(sizes.layers)
    ]
    return feeds, Moe(width, fields.whole("num_experts_per_tok"))


def _read_routed_experts(
    fields: Fields, sizes: _Sizes, dense: tuple[Tensor, ...]
) -> tuple[list[tuple[Tensor, ...]], Moe]:
    width = fields.whole("moe_intermediate_size")
    sparse = experts(sizes.hidden, width, fields.whole("n_routed_experts"))
    shared = fields.maybe_whole("n_shared_experts") or 0
    if shared:
        sparse = (*sparse, *feed_forward(sizes.hidden, width * shared, prefix="mlp.shared_experts"))
    first = fields.maybe_whole("first_k_dense_replace") or 0
    feeds = [dense if number < first else sparse for number in range(sizes.layers)]
    return feeds, Moe(width, fields.whole("num_experts_per_tok"))
