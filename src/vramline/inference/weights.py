"""Bytes of weights on each GPU: every tensor as tensor parallelism cuts it, every layer in its stage."""

from collections.abc import Iterable, Iterator

from vramline.errors import RequestError
from vramline.inference.allocator import allocated_bytes
from vramline.inference.architecture import Architecture, Split, Tensor
from vramline.inference.quantization import Scheme

__all__ = ["check_parallelism", "layers_of_stages", "stage_weights"]

_VOCAB_PADDING = 64
"""Engines pad the vocabulary to multiples of this."""
_LATENT_COPY_BYTES = 2
_JOINED = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
    "q_a_proj": "qkv_a_proj",
    "kv_a_proj_with_mqa": "qkv_a_proj",
}
"""Matrices that engines keep as one."""


def check_parallelism(architecture: Architecture, tp: int, pp: int) -> None:
    """Refuse a degree at which heads cannot be dealt out, or stages have no layer."""
    heads, kv_heads = architecture.heads, architecture.kv_heads
    deals = heads % tp == 0 and (architecture.latent or kv_heads % tp == 0 or tp % kv_heads == 0)
    if not deals:
        fitting = [
            n for n in range(1, heads + 1) if heads % n == 0 and (kv_heads % n == 0 or n % kv_heads == 0)
        ]
        raise RequestError(
            subject=architecture.model_type,
            field="--tp",
            value=tp,
            problem=f"does not divide {heads} heads and {kv_heads} key-value heads",
            accepted=", ".join(str(n) for n in fitting),
        )
    if pp > len(architecture.layers):
        raise RequestError(
            subject=architecture.model_type,
            field="--pp",
            value=pp,
            problem="is more than there are layers",
            accepted=f"1 to {len(architecture.layers)}",
        )


def layers_of_stages(count: int, pp: int) -> list[range]:
    """Return which layers each pipeline stage holds; layers left over go to the stages before the last.

    >>> [len(stage) for stage in layers_of_stages(62, 4)]
    [15, 16, 16, 15]
    """
    sizes = [count // pp] * pp
    for place in range(count % pp):
        sizes[-2 - place] += 1
    starts = [sum(sizes[:number]) for number in range(pp)]
    return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def stage_weights(
    architecture: Architecture,
    scheme: Scheme | None,
    *,
    number_bytes: int,
    tp: int,
    pp: int,
    only_stored: bool = False,
) -> list[int]:
    """Return the bytes of weights on each GPU of each pipeline stage.

    With `only_stored`, what a checkpoint holds: no rotary tables, no second form of a matrix.
    """

    def size(tensors: Iterable[Tensor], layer: int | None = None) -> float:
        return sum(_bytes_on_gpu(tensor, scheme, number_bytes, tp, layer) for tensor in tensors)

    stages = []
    for number, places in enumerate(layers_of_stages(len(architecture.layers), pp)):
        total = sum(size(architecture.layers[place].tensors, place) for place in places)
        if not only_stored:
            total += architecture.rope_numbers * number_bytes
            total += sum(_latent_copy(architecture.layers[place].tensors, tp) for place in places)
        if number == 0:
            total += size(architecture.embedding) + size(architecture.towers)
        if number == pp - 1:
            total += size(architecture.head)
            if architecture.tied and pp > 1 and architecture.generates:
                total += size(architecture.embedding)
        if not only_stored:
            total += _rounding(_stage_tensors(architecture, places, number, pp), scheme, number_bytes, tp)
        stages.append(round(total))
    return stages


def _stage_tensors(
    architecture: Architecture, places: range, number: int, pp: int
) -> Iterator[tuple[int | None, tuple[Tensor, ...]]]:
    """Yield the tensors of a stage in the order in which an engine makes them, with their layer."""
    if number == 0:
        yield None, architecture.towers
        yield None, architecture.embedding
    for place in places:
        yield place, architecture.layers[place].tensors
    if number == pp - 1:
        yield None, architecture.head


def _rounding(
    parts: Iterable[tuple[int | None, tuple[Tensor, ...]]], scheme: Scheme | None, number_bytes: int, tp: int
) -> int:
    """Return what the allocator adds to the matrices of a stage, made as engines join them."""
    sizes: list[float] = []
    for layer, tensors in parts:
        joined: dict[str, float] = {}
        for tensor in tensors:
            rows, columns, _ = _shape_on_gpu(tensor, tp)
            covered = scheme is not None and scheme.covers(tensor, layer)
            if scheme is not None and covered and scheme.pad_to > 1:
                continue  # made anew in another form after loading
            number = scheme.bits / 8 if scheme is not None and covered else number_bytes
            size = rows * max(columns, 1) * number
            if tensor.copies > 1 and ".experts." not in tensor.name:
                sizes += [size] * tensor.copies
            else:
                prefix, _, name = tensor.name.rpartition(".")
                key = f"{prefix}.{_JOINED.get(name, name)}"
                joined[key] = joined.get(key, 0.0) + size * tensor.copies
        sizes += joined.values()
    return allocated_bytes(sizes) - sum(-(-int(size) // 512) * 512 for size in sizes)


def _bytes_on_gpu(
    tensor: Tensor, scheme: Scheme | None, number_bytes: int, tp: int, layer: int | None
) -> float:
    rows, columns, bias = _shape_on_gpu(tensor, tp)
    biases = bias * tensor.copies * number_bytes if tensor.bias else 0
    if scheme is None or not scheme.covers(tensor, layer):
        return rows * max(columns, 1) * tensor.copies * number_bytes + biases
    if ".experts." in tensor.name:
        rows, columns = _padded(rows, scheme.pad_to), round(_padded(columns, scheme.pad_to))
    return scheme.bytes_of(rows, round(columns)) * tensor.copies + biases


def _padded(size: float, to: int) -> float:
    return size if to == 1 else -(-size // to) * to


def _shape_on_gpu(tensor: Tensor, tp: int) -> tuple[float, float, float]:
    """Return rows, columns and length of the bias on one GPU."""
    match tensor.split:
        case Split.OUT:
            return tensor.rows / tp, tensor.columns, tensor.rows / tp
        case Split.IN:
            return tensor.rows, tensor.columns / tp, tensor.rows
        case Split.HEADS:
            share = max(tensor.heads / tp, 1) / tensor.heads
            return tensor.rows * share, tensor.columns, tensor.rows * share
        case Split.VOCAB:
            rows = -(-tensor.rows // _VOCAB_PADDING) * _VOCAB_PADDING / tp
            return rows, tensor.columns, rows
        case _:
            return tensor.rows, tensor.columns, tensor.rows


def _latent_copy(tensors: Iterable[Tensor], tp: int) -> float:
    """Engines keep a second form of the matrix that expands the compressed cache."""
    return sum(
        tensor.weights / tp * _LATENT_COPY_BYTES for tensor in tensors if tensor.name.endswith("kv_b_proj")
    )
