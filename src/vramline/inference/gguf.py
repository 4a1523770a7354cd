"""A GGUF file's header: sizes of the model and of every tensor, without reading the weights."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

from vramline.errors import RequestError
from vramline.inference.architecture import Architecture, AttentionCache, Layer, Moe
from vramline.inference.fields import Fields

__all__ = ["GgufHeader", "architecture_of", "read_gguf"]

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_MOST = 2**24
"""No list or text of a header is longer; a longer one is a broken file."""

_BLOCKS: dict[int, tuple[int, int]] = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    9: (32, 36),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    29: (256, 56),
    30: (1, 2),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
}
"""By type of a tensor: numbers in a block, and bytes of it."""

_FULL_ATTENTION = frozenset(
    {"command-r", "granite", "internlm2", "llama", "olmo2", "phi3", "qwen2", "qwen2moe", "qwen3", "qwen3moe"}
)
"""Architectures in which every layer keeps keys and values of every token."""


class GgufHeader(msgspec.Struct, frozen=True):
    """What the header says."""

    fields: dict[str, object]
    tensor_bytes: int
    parameters: int
    vocab: int


def read_gguf(file: Path) -> GgufHeader:
    """Read the header of one file; raises `RequestError` where it is none, or is one of several."""
    try:
        with file.open("rb") as stream:
            return _read_header(stream, str(file))
    except struct.error:
        raise _broken(str(file), "ends inside its header") from None


def architecture_of(header: GgufHeader, subject: str) -> Architecture:
    """Return the model: weights are known as a whole, so its layers name no tensors."""
    kind = header.fields.get("general.architecture")
    if not isinstance(kind, str) or kind not in _FULL_ATTENTION:
        raise RequestError(
            subject=subject,
            field="general.architecture",
            value=kind,
            problem="is not understood",
            accepted=", ".join(sorted(_FULL_ATTENTION)),
        )
    fields = Fields(_without_prefix(header.fields, kind), subject=subject, path=f"{kind}.")
    if fields.has("attention.sliding_window") or fields.has("attention.kv_lora_rank"):
        raise fields.wrong("attention.sliding_window", "set", "is not understood", "full attention")
    heads, hidden = fields.whole("attention.head_count"), fields.whole("embedding_length")
    kv_heads = fields.whole("attention.head_count_kv", default=heads)
    keys = fields.whole("attention.key_length", default=hidden // heads)
    values = fields.whole("attention.value_length", default=hidden // heads)
    layer = Layer((), AttentionCache(kv_heads, keys + values))
    used = fields.maybe_whole("expert_used_count")
    width = fields.whole("expert_feed_forward_length", "feed_forward_length")
    return Architecture(
        model_type=f"gguf {kind}",
        hidden=hidden,
        intermediate=fields.whole("feed_forward_length", default=width),
        vocab=header.vocab or fields.whole("vocab_size"),
        heads=heads,
        kv_heads=kv_heads,
        layers=(layer,) * fields.whole("block_count"),
        embedding=(),
        head=(),
        tied=False,
        moe=None if used is None else Moe(width, used),
        max_context=fields.maybe_whole("context_length"),
    )


def _without_prefix(fields: Mapping[str, object], kind: str) -> dict[str, object]:
    return {name.removeprefix(f"{kind}."): value for name, value in fields.items()}


def _read_header(stream: BinaryIO, subject: str) -> GgufHeader:
    magic, version = stream.read(4), _unpack(stream, "I")
    if magic != b"GGUF" or version not in {2, 3}:
        raise _broken(subject, "is no GGUF file of version 2 or 3")
    tensors, entries = _unpack(stream, "Q"), _unpack(stream, "Q")
    if tensors > _MOST or entries > _MOST:
        raise _broken(subject, "has a broken header")
    fields: dict[str, object] = {}
    vocab = 0
    for _ in range(entries):
        name = _read_text(stream, subject)
        kind = _unpack(stream, "I")
        if kind == _ARRAY:
            count = _skip_array(stream, subject)
            vocab = count if name == "tokenizer.ggml.tokens" else vocab
        else:
            fields[name] = _read_value(stream, kind, subject)
    split = fields.get("split.count")
    if isinstance(split, int) and split > 1:
        raise RequestError(
            subject=subject,
            field="split.count",
            value=split,
            problem="this is one of several files, and the others are not read",
            accepted="a model in one file",
        )
    size = parameters = 0
    for _ in range(tensors):
        count, taken = _read_tensor(stream, subject)
        parameters, size = parameters + count, size + taken
    return GgufHeader(fields, size, parameters, vocab)


def _read_tensor(stream: BinaryIO, subject: str) -> tuple[int, int]:
    """Return how many numbers a tensor has and how many bytes they take."""
    name = _read_text(stream, subject)
    dimensions = _unpack(stream, "I")
    if dimensions > 8:
        raise _broken(subject, "has a broken header")
    count = 1
    for _ in range(dimensions):
        count *= _unpack(stream, "Q")
    kind, _ = _unpack(stream, "I"), _unpack(stream, "Q")
    if kind not in _BLOCKS:
        raise RequestError(
            subject=subject,
            field=f"tensor {name}",
            value=kind,
            problem="is of a type that is not understood",
            accepted=", ".join(str(known) for known in _BLOCKS),
        )
    numbers, size = _BLOCKS[kind]
    return count, -(-count // numbers) * size


def _unpack(stream: BinaryIO, form: str) -> int:
    value: int = struct.unpack(f"<{form}", stream.read(struct.calcsize(f"<{form}")))[0]
    return value


def _read_text(stream: BinaryIO, subject: str) -> str:
    length = _unpack(stream, "Q")
    if length > _MOST:
        raise _broken(subject, "has a broken header")
    return stream.read(length).decode("utf-8", errors="replace")


def _read_value(stream: BinaryIO, kind: int, subject: str) -> object:
    if kind == _TEXT:
        return _read_text(stream, subject)
    if kind not in _SCALARS:
        raise _broken(subject, "has a broken header")
    return _unpack(stream, _SCALARS[kind])


def _skip_array(stream: BinaryIO, subject: str) -> int:
    """Pass over a list, and return how long it is."""
    kind, count = _unpack(stream, "I"), _unpack(stream, "Q")
    if count > _MOST or (kind not in _SCALARS and kind != _TEXT):
        raise _broken(subject, "has a broken header")
    if kind == _TEXT:
        for _ in range(count):
            _read_text(stream, subject)
    else:
        stream.read(count * struct.calcsize(f"<{_SCALARS[kind]}"))
    return count


def _broken(subject: str, problem: str) -> RequestError:
    return RequestError(subject=subject, problem=problem, accepted="a complete GGUF file")
