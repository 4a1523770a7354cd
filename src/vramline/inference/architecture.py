"""A model as memory sees it: its tensors, and what each layer remembers of a token or a sequence."""

import enum

import msgspec

from vramline.errors import RequestError

__all__ = [
    "Architecture",
    "AttentionCache",
    "Cache",
    "LatentCache",
    "Layer",
    "Moe",
    "Split",
    "StateCache",
    "Tensor",
    "count_parameters",
]


class Split(enum.StrEnum):
    """How tensor parallelism divides a tensor among GPUs."""

    OUT = "out"
    """By rows: each GPU makes a part of the output."""
    IN = "in"
    """By columns: each GPU takes a part of the input; a bias is whole on each."""
    HEADS = "heads"
    """By key-value heads: whole heads, and at least one on each GPU."""
    VOCAB = "vocab"
    """By rows, after padding the vocabulary."""
    NONE = "none"
    """Whole on each GPU."""


class Tensor(msgspec.Struct, frozen=True):
    """A matrix of `rows` × `columns` (outputs × inputs), or a vector where `columns` is 0."""

    name: str
    """As checkpoints spell it, without the layer."""
    rows: int
    columns: int = 0
    split: Split = Split.NONE
    copies: int = 1
    """Experts: so many of the same shape."""
    bias: bool = False
    linear: bool = False
    """Whether a quantisation of linear layers applies to it."""
    heads: int = 0
    """Key-value heads, where `split` is by them."""

    @property
    def weights(self) -> int:
        """How many parameters it has, without its bias."""
        return self.rows * max(self.columns, 1) * self.copies

    @property
    def biases(self) -> int:
        """How many parameters its bias has."""
        return self.rows * self.copies if self.bias else 0


class AttentionCache(msgspec.Struct, frozen=True, tag_field="kind", tag="attention"):
    """Keys and values of each token, or of the last `window` tokens."""

    heads: int
    width: int
    """Numbers for one head and one token: key and value together."""
    window: int | None = None


class LatentCache(msgspec.Struct, frozen=True, tag_field="kind", tag="latent"):
    """One compressed vector for each token (multi-head latent attention); the same on every GPU."""

    width: int
    expanded: AttentionCache | None = None
    """What an engine keeps that does not know the compressed form; None: all engines know it."""


class StateCache(msgspec.Struct, frozen=True, tag_field="kind", tag="state"):
    """A state of fixed size for each sequence, however long it is (linear attention, state spaces)."""

    numbers: int
    wide_numbers: int = 0
    """Of these, how many are kept in 4 bytes whatever the type of the cache."""


Cache = AttentionCache | LatentCache | StateCache


class Layer(msgspec.Struct, frozen=True):
    """One layer: its tensors and what it remembers; None: nothing."""

    tensors: tuple[Tensor, ...]
    cache: Cache | None


class Moe(msgspec.Struct, frozen=True):
    """What the experts of a layer take while they work."""

    intermediate: int
    chosen: int
    """Experts for each token."""


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a model that its memory depends on."""

    model_type: str
    hidden: int
    intermediate: int
    """Of the widest feed-forward part that every token goes through; 0: there is none."""
    vocab: int
    heads: int
    kv_heads: int
    layers: tuple[Layer, ...]
    embedding: tuple[Tensor, ...]
    head: tuple[Tensor, ...]
    """After the last layer: norm, and the language-model head where it has weights of its own."""
    tied: bool
    """Whether the head uses the weights of the embedding."""
    generates: bool = True
    """Whether it samples tokens; an embedding or reward model does not."""
    towers: tuple[Tensor, ...] = ()
    """Vision and audio parts, and what joins them to the text."""
    moe: Moe | None = None
    max_context: int | None = None
    rope_numbers: int = 0
    """Tables of rotary positions, whole on each GPU."""
    dtype: str = ""
    uncounted: RequestError | None = None
    """A part whose weights the config does not describe; only files can tell."""
    notes: tuple[str, ...] = ()

    @property
    def latent(self) -> bool:
        """Whether any layer keeps the compressed form."""
        return any(isinstance(layer.cache, LatentCache) for layer in self.layers)


def count_parameters(architecture: Architecture) -> int:
    """Return the exact number of parameters; raises where a part of them is not described."""
    if architecture.uncounted is not None:
        raise architecture.uncounted
    parts = [architecture.embedding, architecture.head, architecture.towers]
    parts += [layer.tensors for layer in architecture.layers]
    return sum(tensor.weights + tensor.biases for part in parts for tensor in part)
