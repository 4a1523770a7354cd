"""How quantised weights are stored: bits, scales, zero points, and which modules are left as they were."""

import fnmatch
import re
from collections.abc import Callable, Mapping

import msgspec

from vramline.errors import RequestError
from vramline.inference.architecture import Tensor
from vramline.inference.fields import Fields

__all__ = ["METHODS", "Scheme", "quantise_on_load", "read_quantization"]

_PREFIXES = ("", "model.", "language_model.", "model.language_model.")
"""How checkpoints of models that see spell the path to the text part."""


class Scheme(msgspec.Struct, frozen=True, kw_only=True):
    """One way to store linear layers. Everything else stays in the model's own type."""

    method: str
    bits: int
    group: int = 0
    """Inputs that share a scale; 0: a whole row does; −1: the whole tensor does."""
    block: tuple[int, int] | None = None
    """Rows and columns of the blocks that share a scale."""
    scale_bytes: float = 2
    zero_bits: int = 0
    index_bytes: int = 0
    """For each input, where its group is looked up."""
    ignored: tuple[str, ...] = ()
    experts_only: bool = False
    pad_to: int = 1
    """Experts are padded to multiples of this, in both directions."""

    def covers(self, tensor: Tensor, layer: int | None = None) -> bool:
        """Whether a tensor is stored this way."""
        if not tensor.linear or (self.experts_only and ".experts." not in tensor.name):
            return False
        if not self.ignored:
            return True
        path = tensor.name if layer is None else f"layers.{layer}.{tensor.name}"
        return not any(_matches(pattern, prefix + path) for pattern in self.ignored for prefix in _PREFIXES)

    def bytes_of(self, rows: float, columns: int) -> float:
        """Return what a matrix takes, its scales and zero points among it."""
        size = rows * columns * self.bits / 8
        if self.block is not None:
            return size + -(-rows // self.block[0]) * -(-columns // self.block[1]) * self.scale_bytes
        if self.group < 0:
            return size + self.scale_bytes
        groups = rows * (-(-columns // self.group) if self.group else 1)
        return size + groups * (self.scale_bytes + self.zero_bits / 8) + columns * self.index_bytes

    def describe(self) -> str:
        """Say it in a few words."""
        if self.block is not None:
            share = f"blocks of {self.block[0]} × {self.block[1]}"
        else:
            share = {0: "rows", -1: "tensors"}.get(self.group, f"groups of {self.group}")
        return f"{self.method}: {self.bits} bits, scales for {share}"


def _matches(pattern: str, path: str) -> bool:
    if pattern.startswith("re:"):
        return re.match(pattern[3:], path) is not None
    if "*" in pattern:
        return fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(path, f"{pattern}.*")
    return path == pattern or path.startswith(f"{pattern}.") or path.endswith(f".{pattern}")


def read_quantization(data: Mapping[str, object], subject: str) -> Scheme | None:
    """Read how a checkpoint is quantised; None: it is not. Refuses what it does not know."""
    top = Fields(data, subject=subject)
    found = top.child("quantization_config", "compression_config")
    if found is None:
        text = top.child("text_config", "language_config")
        found = None if text is None else text.child("quantization_config")
    if found is None:
        return None
    method = found.text("quant_method")
    reader = _READERS.get(method)
    if reader is None:
        raise found.wrong(
            "quant_method",
            method or None,
            "is not understood" if method else "is missing",
            ", ".join(_READERS),
        )
    scheme = reader(found)
    for pattern in scheme.ignored:
        _check_pattern(found, pattern)
    return scheme


def _check_pattern(fields: Fields, pattern: str) -> None:
    if pattern.startswith("re:"):
        try:
            re.compile(pattern[3:])
        except re.error as error:
            raise fields.wrong(
                "ignore", pattern, f"is not a regular expression: {error}", "re:PATTERN or a name"
            ) from None


def _ignored(fields: Fields, *names: str) -> tuple[str, ...]:
    return tuple(pattern for name in names for pattern in fields.words(name) or ())


def _read_fp8(fields: Fields) -> Scheme:
    size = fields.numbers("weight_block_size")
    ignored = _ignored(fields, "modules_to_not_convert", "ignored_layers")
    if size is None:
        return Scheme(method="fp8", bits=8, group=-1, scale_bytes=4, ignored=ignored)
    if len(size) != 2 or min(size) < 1:
        raise fields.wrong("weight_block_size", list(size), "is not a pair of sizes", "[128, 128]")
    return Scheme(method="fp8", bits=8, block=(size[0], size[1]), scale_bytes=4, ignored=ignored)


def _read_fbgemm(fields: Fields) -> Scheme:
    return Scheme(
        method="fbgemm_fp8", bits=8, scale_bytes=4, ignored=_ignored(fields, "modules_to_not_convert")
    )


def _read_awq(fields: Fields) -> Scheme:
    bits = fields.whole("bits", "w_bit")
    zeros = bits if fields.flag("zero_point", default=True) else 0
    return Scheme(
        method="awq",
        bits=bits,
        group=fields.whole("group_size", "q_group_size"),
        zero_bits=zeros,
        ignored=_ignored(fields, "modules_to_not_convert"),
    )


def _read_gptq(fields: Fields) -> Scheme:
    if fields.length("dynamic"):
        raise fields.wrong(
            "dynamic", "…", "sets other bits for some modules, which is not understood", "none"
        )
    bits = fields.whole("bits")
    by_row = fields.number("group_size", default=128) == -1
    return Scheme(
        method="gptq",
        bits=bits,
        group=0 if by_row else fields.whole("group_size", default=128),
        zero_bits=bits,
        index_bytes=4,
        ignored=_ignored(fields, "modules_in_block_to_not_quantize"),
    )


def _read_bitsandbytes(fields: Fields) -> Scheme:
    ignored = _ignored(fields, "llm_int8_skip_modules")
    if fields.flag("load_in_8bit", default=False) or fields.flag("_load_in_8bit", default=False):
        return Scheme(method="bitsandbytes", bits=8, scale_bytes=4, ignored=ignored)
    twice = fields.flag("bnb_4bit_use_double_quant", default=False)
    scale = 1 + 4 / 256 if twice else 4
    return Scheme(method="bitsandbytes", bits=4, group=64, scale_bytes=scale, ignored=ignored)


def _read_mxfp4(fields: Fields) -> Scheme:
    return Scheme(
        method="mxfp4",
        bits=4,
        group=32,
        scale_bytes=1,
        ignored=_ignored(fields, "modules_to_not_convert"),
        experts_only=True,
        pad_to=256,
    )


def _read_modelopt(fields: Fields) -> Scheme:
    algorithm = fields.text("quant_algo").upper()
    ignored = _ignored(fields, "ignore", "exclude_modules")
    match algorithm:
        case "FP8":
            return Scheme(method="modelopt", bits=8, group=-1, scale_bytes=4, ignored=ignored)
        case "NVFP4":
            return Scheme(method="modelopt", bits=4, group=16, scale_bytes=1, ignored=ignored)
        case _:
            raise fields.wrong("quant_algo", algorithm or None, "is not understood", "FP8, NVFP4")


def _read_compressed(fields: Fields) -> Scheme:
    groups = fields.child("config_groups")
    names = [] if groups is None else groups.names()
    if groups is None or len(names) != 1:
        raise fields.wrong(
            "config_groups", len(names), "is not one group", "one group of weights for all linear layers"
        )
    group = groups.child(names[0])
    weights = None if group is None else group.child("weights")
    if group is None or weights is None:
        raise fields.wrong("config_groups", names, "has no weights", "weights with num_bits and strategy")
    targets = group.words("targets") or ()
    if targets != ("Linear",):
        raise group.wrong("targets", list(targets), "is not understood", '["Linear"]')
    bits, symmetric = weights.whole("num_bits"), weights.flag("symmetric", default=True)
    shared, block = _strategy(weights)
    return Scheme(
        method="compressed-tensors",
        bits=bits,
        group=shared,
        block=block,
        ignored=_ignored(fields, "ignore"),
        zero_bits=0 if symmetric else bits,
    )


def _strategy(weights: Fields) -> tuple[int, tuple[int, int] | None]:
    """Return what shares a scale: a group, or a block."""
    strategy = weights.text("strategy") or "channel"
    match strategy:
        case "channel":
            return 0, None
        case "tensor":
            return -1, None
        case "group" | "tensor_group":
            return weights.whole("group_size"), None
        case "block":
            size = weights.numbers("block_structure") or (128, 128)
            return 0, (size[0], size[-1])
        case _:
            raise weights.wrong("strategy", strategy, "is not understood", "channel, tensor, group, block")


_READERS: dict[str, Callable[[Fields], Scheme]] = {
    "fp8": _read_fp8,
    "fbgemm_fp8": _read_fbgemm,
    "awq": _read_awq,
    "gptq": _read_gptq,
    "gptq_marlin": _read_gptq,
    "bitsandbytes": _read_bitsandbytes,
    "mxfp4": _read_mxfp4,
    "modelopt": _read_modelopt,
    "modelopt_fp4": _read_modelopt,
    "compressed-tensors": _read_compressed,
}

_ON_LOAD: dict[str, Scheme] = {
    "fp8": Scheme(method="fp8", bits=8, group=-1, scale_bytes=4),
    "int8": Scheme(method="int8", bits=8),
    "int4": Scheme(method="int4", bits=4, group=128),
    "awq": Scheme(method="awq", bits=4, group=128, zero_bits=4),
    "gptq": Scheme(method="gptq", bits=4, group=128, zero_bits=4, index_bytes=4),
    "bitsandbytes": Scheme(method="bitsandbytes", bits=4, group=64, scale_bytes=4),
}

METHODS = tuple(_ON_LOAD)
"""What `--quantization` takes."""


def quantise_on_load(method: str) -> Scheme:
    """Return the usual form of a quantisation that an engine makes while it loads a plain checkpoint."""
    if method not in _ON_LOAD:
        raise RequestError(
            subject="estimate",
            field="--quantization",
            value=method,
            problem="is not understood",
            accepted=", ".join(METHODS),
        )
    return _ON_LOAD[method]
