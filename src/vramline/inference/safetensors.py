"""How many bytes the safetensors files of a model hold: headers only, never the weights."""

import struct
from pathlib import Path

import msgspec

from vramline.errors import RequestError

__all__ = ["FileWeights", "read_safetensors"]

_LARGEST_HEADER = 100 * 2**20
_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "F4": 0.5,
    "U16": 2,
    "U32": 4,
    "U64": 8,
}
_PLAIN = frozenset({"F64", "F32", "F16", "BF16"})
"""Types that an engine converts to its own; the others are stored as they are."""
_ADAPTERS = ("adapter_model", "consolidated", "original")


class FileWeights(msgspec.Struct, frozen=True):
    """What files hold."""

    stored_bytes: int
    """Of tensors that stay as they are."""
    numbers: int
    """Numbers that an engine converts to its own type."""


class _Tensor(msgspec.Struct):
    dtype: str
    shape: list[int]


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def read_safetensors(folder: Path) -> FileWeights | None:
    """Sum up the tensors of a model's folder; None: it has no safetensors files."""
    files = _files_of(folder)
    if not files:
        return None
    stored = numbers = 0
    for file in files:
        for tensor in _read_header(file):
            count = 1
            for size in tensor.shape:
                count *= size
            if tensor.dtype in _PLAIN:
                numbers += count
            elif tensor.dtype in _BYTES:
                stored += int(count * _BYTES[tensor.dtype])
            else:
                raise RequestError(
                    subject=str(file),
                    field="dtype",
                    value=tensor.dtype,
                    problem="is not understood",
                    accepted=", ".join(_BYTES),
                )
    return FileWeights(stored, numbers)


def _files_of(folder: Path) -> list[Path]:
    """Return the shards that the index names, or every safetensors file; a missing shard is an error."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return sorted(file for file in folder.glob("*.safetensors") if not file.name.startswith(_ADAPTERS))
    try:
        names = sorted(set(msgspec.json.decode(index.read_bytes(), type=_Index).weight_map.values()))
    except msgspec.DecodeError as error:
        raise RequestError(
            subject=str(index), problem=f"cannot be read: {error}", accepted="a safetensors index"
        ) from None
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise RequestError(
            subject=str(index),
            field="weight_map",
            value=missing[0],
            problem=f"names {len(missing)} of {len(names)} files that are not there",
            accepted="a complete download, or the config.json alone",
        )
    return [folder / name for name in names]


def _read_header(file: Path) -> list[_Tensor]:
    with file.open("rb") as stream:
        size = stream.read(8)
        length = struct.unpack("<Q", size)[0] if len(size) == 8 else 0
        if not 2 <= length <= _LARGEST_HEADER:
            raise _broken(file)
        raw = stream.read(length)
    try:
        entries = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        return [
            msgspec.json.decode(entry, type=_Tensor)
            for name, entry in entries.items()
            if name != "__metadata__"
        ]
    except (msgspec.DecodeError, msgspec.ValidationError):
        raise _broken(file) from None


def _broken(file: Path) -> RequestError:
    return RequestError(
        subject=str(file), problem="has no safetensors header", accepted="a complete safetensors file"
    )
