"""The blocks models are built from: attention, feed-forward, experts, norms, as tensors."""

import msgspec

from vramline.inference.architecture import Split, Tensor

__all__ = [
    "AttentionShape",
    "LatentShape",
    "attention",
    "experts",
    "feed_forward",
    "latent_attention",
    "norm",
    "norms_of",
]


class AttentionShape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of one attention block."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: str = ""
    """head: one norm as wide as a head for queries and one for keys; all: as wide as all heads."""
    norm_bias: bool = False
    gated: bool = False
    """Whether queries come with a gate of the same size."""


class LatentShape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of one multi-head latent attention block."""

    hidden: int
    heads: int
    q_rank: int | None
    kv_rank: int
    nope: int
    rope: int
    value: int


def norm(name: str, width: int, *, bias: bool = False) -> Tensor:
    """Return a norm's weights."""
    return Tensor(name, width, bias=bias)


def norms_of(hidden: int, *, bias: bool = False) -> tuple[Tensor, Tensor]:
    """Return the two norms of a layer, before attention and before what follows it."""
    return norm("input_layernorm", hidden, bias=bias), norm("post_attention_layernorm", hidden, bias=bias)


def attention(shape: AttentionShape, prefix: str = "self_attn") -> tuple[Tensor, ...]:
    """Return the projections of an attention block with its own or grouped keys and values."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    outputs = queries * (2 if shape.gated else 1)
    tensors = [
        Tensor(f"{prefix}.q_proj", outputs, shape.hidden, Split.OUT, bias=shape.qkv_bias, linear=True),
        *(
            Tensor(
                f"{prefix}.{name}",
                keys,
                shape.hidden,
                Split.HEADS,
                bias=shape.qkv_bias,
                linear=True,
                heads=shape.kv_heads,
            )
            for name in ("k_proj", "v_proj")
        ),
        Tensor(f"{prefix}.o_proj", shape.hidden, queries, Split.IN, bias=shape.o_bias, linear=True),
    ]
    if shape.qk_norm:
        whole = shape.qk_norm == "all"
        tensors.append(norm(f"{prefix}.q_norm", queries if whole else shape.head_dim, bias=shape.norm_bias))
        tensors.append(norm(f"{prefix}.k_norm", keys if whole else shape.head_dim, bias=shape.norm_bias))
    return tuple(tensors)


def latent_attention(shape: LatentShape) -> tuple[Tensor, ...]:
    """Return the projections of multi-head latent attention."""
    queries = shape.heads * (shape.nope + shape.rope)
    if shape.q_rank is None:
        tensors = [Tensor("self_attn.q_proj", queries, shape.hidden, Split.OUT, linear=True)]
    else:
        tensors = [
            Tensor("self_attn.q_a_proj", shape.q_rank, shape.hidden, linear=True),
            norm("self_attn.q_a_layernorm", shape.q_rank),
            Tensor("self_attn.q_b_proj", queries, shape.q_rank, Split.OUT, linear=True),
        ]
    values = shape.heads * shape.value
    expanded = shape.heads * (shape.nope + shape.value)
    return (
        *tensors,
        Tensor("self_attn.kv_a_proj_with_mqa", shape.kv_rank + shape.rope, shape.hidden, linear=True),
        norm("self_attn.kv_a_layernorm", shape.kv_rank),
        Tensor("self_attn.kv_b_proj", expanded, shape.kv_rank, Split.OUT, linear=True),
        Tensor("self_attn.o_proj", shape.hidden, values, Split.IN, linear=True),
    )


def feed_forward(
    hidden: int, intermediate: int, *, gated: bool = True, bias: bool = False, prefix: str = "mlp"
) -> tuple[Tensor, ...]:
    """Return a feed-forward block: gate (where it has one), up and down."""
    ups = ("gate_proj", "up_proj") if gated else ("up_proj",)
    return (
        *(Tensor(f"{prefix}.{up}", intermediate, hidden, Split.OUT, bias=bias, linear=True) for up in ups),
        Tensor(f"{prefix}.down_proj", hidden, intermediate, Split.IN, bias=bias, linear=True),
    )


def experts(
    hidden: int,
    intermediate: int,
    count: int,
    *,
    bias: bool = False,
    router_bias: bool = False,
    prefix: str = "mlp",
) -> tuple[Tensor, ...]:
    """Return `count` gated feed-forward blocks and the router that chooses among them."""
    name = f"{prefix}.experts"
    return (
        Tensor(f"{prefix}.router", count, hidden, bias=router_bias),
        *(
            Tensor(f"{name}.{up}", intermediate, hidden, Split.OUT, copies=count, bias=bias, linear=True)
            for up in ("gate_proj", "up_proj")
        ),
        Tensor(f"{name}.down_proj", hidden, intermediate, Split.IN, copies=count, bias=bias, linear=True),
    )
