"""The cluster as arrays: one row per physical GPU, the rows of a node next to each other.

A node owns a *block* of rows, ordered by UUID, so that "first row" is also the tie-break. Blocks never
move; the block of a node that left is re-used by the next node with as many cards. Every figure in a row
is a copy of what `law.take_account` said; nothing is computed here a second time.

Rules read the arrays through `GpuColumns.<name>`, which are views cut to the rows in use. Every change of a
block that counts is noted in `changes`, so that whoever has seen the block before knows.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from vramline.errors import InvariantError
from vramline.model.ask import RealtimeMode
from vramline.model.changes import Changes
from vramline.model.counts import (
    ALL_CORES,
    COUNTED,
    NEVER,
    NO_LIMIT,
    SEEN,
    CardCount,
    figures_of,
    is_limited,
    look_at,
)
from vramline.model.gpu import PhysicalGpu
from vramline.model.law import promise_of
from vramline.model.observation import Observation, Unknown
from vramline.model.reason import CODE_OF, Reason
from vramline.model.sorts import OF_SORT, CardKind, CardSort, static_code
from vramline.units import Mib

__all__ = ["ALL_CORES", "NEVER", "NODE_MODES", "NO_LIMIT", "Block", "CardKind", "GpuColumns"]

NODE_MODES: tuple[tuple[RealtimeMode | None, bool], ...] = (
    (None, False),
    *((mode, False) for mode in RealtimeMode),
    (None, True),
)
"""What a node may say itself: nothing, a mode, or that the check is on."""

_FIELDS: dict[str, npt.DTypeLike] = {
    "promise": np.int64,  # usable − margin: what the empty card can promise
    "claimed": np.int64,
    "claimed_releasing": np.int64,
    "held": np.int64,
    "held_releasing": np.int64,
    "unmanaged": np.int64,  # meaningless where `observed_at` is NEVER
    "free_books": np.int64,
    "free_observed": np.int64,  # equals free_books where `observed_at` is NEVER
    "observed_at": np.float64,
    "void_at": np.float64,  # from when on the observation counts for nothing
    "used_percent": np.float64,  # of the total, as observed; NaN where unknown
    "utilization": np.float64,  # NaN where unknown
    "slots": np.int64,  # 1 where not shared by replicas
    "slots_left": np.int64,
    "cores_left": np.int64,
    "sharers": np.int64,  # number of claims
    "model": np.int32,  # index into `models`
    "kind": np.int32,  # index into `kinds`
    "numa": np.int32,  # −1: unknown
    "unified": np.bool_,  # takes from the memory of its machine
    "static_code": np.int8,  # FITS, or why no ask at all may use this card
    "node_mode": np.int8,  # the node's own mode of the real-time check: an index into NODE_MODES
    "block": np.int32,  # which block the row belongs to
}


_BY_UUID = attrgetter("uuid")


class Block:
    """A run of rows that belongs to one node, or to none at the moment."""

    __slots__ = ("gpus", "node", "start", "width")

    def __init__(self, start: int, width: int) -> None:
        self.start = start
        self.width = width
        self.node: int | None = None
        self.gpus: tuple[PhysicalGpu, ...] = ()

    def copy(self) -> "Block":
        """Return the same run of rows."""
        copy = Block(self.start, self.width)
        copy.node, copy.gpus = self.node, self.gpus
        return copy


class GpuColumns:
    """Struct of arrays over all cards of the fleet."""

    def __init__(self, arrays: dict[str, npt.NDArray[Any]] | None = None) -> None:
        """`arrays`: rows that are there already, by field; None: there are none yet."""
        self._size = 0
        self._arrays = _no_rows() if arrays is None else arrays
        self._cut: list[str] = []  # of which fields there is a view
        self.blocks: list[Block] = []
        self._idle: dict[int, list[int]] = {}
        self._starts = np.zeros(16, dtype=np.int64)
        self._widths = np.zeros(16, dtype=np.int64)
        self._node_of_block = np.zeros(16, dtype=np.int64)
        self.changes = Changes()
        """Of blocks; when and how busy a card was seen does not count."""
        self.looks = 0
        """Grows when it is written down when a card was seen."""
        self.has_streams = False
        """Whether any card was ever seen through a stream, whose word becomes void before it is old."""
        self.has_node_modes = False
        """Whether any node ever had a mode of the real-time check of its own."""
        self.has_unified = False
        """Whether any card ever took from the memory of its machine."""
        self.has_limits = False
        """Whether any card ever had no slot left, or less than `ALL_CORES` of its compute."""
        self.row_of: dict[str, int] = {}
        self._gpu_at: list[PhysicalGpu | None] = []
        self.models: list[str] = []
        self._model_index: dict[str, int] = {}
        self.kinds: list[CardKind] = []
        self._kind_index: dict[CardKind, int] = {}
        self._straight: tuple[object, int, bool] = (None, 0, False)
        self.layout = object()
        """Another one whenever cards come, go, or are taken in or out of service."""

    def __len__(self) -> int:
        """Rows in use or waiting to be re-used."""
        return self._size

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        if name not in _FIELDS:
            raise AttributeError(name)
        view: npt.NDArray[Any] = self.__dict__["_arrays"][name][: self._size]
        self.__dict__[name] = view  # the next time nobody comes here, until rows are added
        self.__dict__.setdefault("_cut", []).append(name)
        return view

    def copy(self) -> "GpuColumns":
        """Return columns with the same rows that may be changed without changing these."""
        copy = GpuColumns()
        copy._size = self._size
        copy._arrays = {name: array.copy() for name, array in self._arrays.items()}
        copy.blocks = [block.copy() for block in self.blocks]
        copy._idle = {width: list(numbers) for width, numbers in self._idle.items()}
        copy._starts, copy._node_of_block = self._starts.copy(), self._node_of_block.copy()
        copy._widths, copy.changes = self._widths.copy(), self.changes.copy()
        copy.row_of, copy._gpu_at = dict(self.row_of), list(self._gpu_at)
        copy.models, copy._model_index = list(self.models), dict(self._model_index)
        copy.has_streams, copy.has_node_modes, copy.looks = self.has_streams, self.has_node_modes, self.looks
        copy.has_unified, copy.has_limits = self.has_unified, self.has_limits
        copy.kinds, copy._kind_index = list(self.kinds), dict(self._kind_index)
        copy.layout = self.layout
        return copy

    def only(self, number: int) -> "GpuColumns":
        """Return a copy of the rows of one block, as block 0 of node 0; only to be read."""
        block = self.blocks[number]
        rows = slice(block.start, block.start + block.width)
        alone = GpuColumns({name: array[rows].copy() for name, array in self._arrays.items()})
        alone._size = block.width
        alone._arrays["block"] = np.zeros(block.width, dtype=np.int32)
        alone.blocks = [Block(0, block.width)]
        alone._widths[0] = block.width
        alone.blocks[0].node, alone.blocks[0].gpus = 0, block.gpus
        alone.row_of = {gpu.uuid: row for row, gpu in enumerate(block.gpus)}
        alone._gpu_at = self._gpu_at[rows]
        alone.models, alone._model_index = self.models, self._model_index
        alone.has_streams, alone.has_node_modes = self.has_streams, self.has_node_modes
        alone.has_unified, alone.has_limits = self.has_unified, self.has_limits
        alone.kinds, alone._kind_index = self.kinds, self._kind_index
        return alone

    def part(self, numbers: npt.NDArray[np.int64]) -> "tuple[GpuColumns, npt.NDArray[np.int64] | slice]":
        """Return some blocks (ascending) as if they were all, to be read at once, and which rows they are.

        What has changed can be looked at alone; of which nodes the blocks are is not told. All blocks are
        these columns themselves.
        """
        if len(numbers) == len(self.blocks):
            return self, slice(None)
        if len(numbers) == 1:
            return self.one(int(numbers[0]))
        widths = self._widths[numbers]
        ends = widths.cumsum()
        size, starts = int(ends[-1]) if len(ends) else 0, ends - widths
        rows = np.arange(size) + (self._starts[numbers] - starts).repeat(widths)
        return self._some(rows, starts, widths, size), rows

    def one(self, number: int) -> "tuple[GpuColumns, slice]":
        """Do the same for one block."""
        block = self.blocks[number]
        rows = slice(block.start, block.start + block.width)
        return self._some(rows, _FIRST, self._widths[number : number + 1], block.width), rows

    def _some(
        self,
        rows: npt.NDArray[np.int64] | slice,
        starts: npt.NDArray[np.int64],
        widths: npt.NDArray[np.int64],
        size: int,
    ) -> "_SomeColumns":
        part = _SomeColumns(self._arrays, rows, starts, widths, size)
        part.blocks = [_SOME_BLOCK] * len(widths)
        part.models, part.kinds = self.models, self.kinds
        part.has_streams, part.has_node_modes = self.has_streams, self.has_node_modes
        part.has_limits = self.has_limits
        return part

    def card(self, row: int) -> PhysicalGpu:
        """Return the card of a row that is in use."""
        gpu = self._gpu_at[row]
        if gpu is None:
            raise InvariantError(f"row {row} holds no card")
        return gpu

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """First row of each block, ascending: the index for `reduceat`."""
        return self._starts[: len(self.blocks)]

    @property
    def widths(self) -> npt.NDArray[np.int64]:
        """Number of rows of each block."""
        return self._widths[: len(self.blocks)]

    @property
    def node_of_block(self) -> npt.NDArray[np.int64]:
        """Node of each block; −1 where the block waits for a node."""
        return self._node_of_block[: len(self.blocks)]

    def is_straight(self, nodes: int) -> bool:
        """Whether there are so many nodes, each of which has the block of its own number."""
        if self._straight[:2] != (self.layout, nodes):
            straight = len(self.blocks) == nodes and np.array_equal(self.node_of_block, np.arange(nodes))
            self._straight = (self.layout, nodes, straight)
        return self._straight[2]

    def add_blocks(self, wanted: Sequence[tuple[int, tuple[PhysicalGpu, ...]]], margin: Mib) -> list[int]:
        """Give nodes (by number) rows for their cards, at least one each; return the blocks' numbers."""
        if not wanted:
            return []
        names = [gpu.uuid for _, gpus in wanted for gpu in gpus]
        if len({*names}) != len(names) or not self.row_of.keys().isdisjoint(names):
            raise InvariantError("a card is on two nodes")
        self.layout = object()
        numbers = [self._take_block(node, gpus) for node, gpus in wanted]
        blocks = [self.blocks[number] for number in numbers]
        cards = [gpu for block in blocks for gpu in block.gpus]
        rows = [row for block in blocks for row in range(block.start, block.start + block.width)]
        self.row_of.update(zip([gpu.uuid for gpu in cards], rows, strict=True))
        for row, gpu in zip(rows, cards, strict=True):
            self._gpu_at[row] = gpu
        where, at = np.array(numbers, dtype=np.int64), np.array(rows, dtype=np.int64)
        self._node_of_block[where] = [node for node, _ in wanted]
        self._starts[where] = [block.start for block in blocks]
        self._widths[where] = [block.width for block in blocks]
        self._arrays["block"][at] = where.repeat(self._widths[where])
        self.changes.note_all(where)
        self._write_static(at, cards, margin)
        return numbers

    def drop_block(self, number: int) -> None:
        """Take a node's rows out of service and keep them for another node of the same width."""
        self.layout = object()
        self.changes.note(number)
        block = self.blocks[number]
        for row, gpu in enumerate(block.gpus, start=block.start):
            del self.row_of[gpu.uuid]
            self._gpu_at[row] = None
        rows = slice(block.start, block.start + block.width)
        self._arrays["static_code"][rows] = CODE_OF[Reason.NO_SUCH_GPU]
        self._arrays["observed_at"][rows] = self._arrays["void_at"][rows] = NEVER
        self.looks += 1
        self._node_of_block[number] = -1
        block.node, block.gpus = None, ()
        self._idle.setdefault(block.width, []).append(number)

    def write_count(self, count: CardCount, *, seen: bool = True) -> None:
        """Copy what the memory law said about one card, and if that is new, when and how busy it was seen."""
        arrays, row = self._arrays, count.row
        self.changes.note(int(arrays["block"][row]))
        figures = figures_of(count.gpu, count.account, count.sharers, count.cores)
        self.has_limits = self.has_limits or is_limited(figures)
        for name, figure in zip(COUNTED, figures, strict=True):
            arrays[name][row] = figure
        if seen:
            self.write_observation(row, count.gpu, count.observation)

    def write_observation(self, row: int, gpu: PhysicalGpu, observation: Observation | None) -> None:
        """Copy when and how busy a card was seen; without a used figure it counts as not seen."""
        arrays, seen = self._arrays, look_at(gpu, observation)
        self.has_streams = self.has_streams or seen.is_streamed
        if (arrays["observed_at"][row], arrays["void_at"][row]) != (seen.observed_at, seen.void_at):
            self.looks += 1
        for name, figure in zip(SEEN, seen, strict=True):
            arrays[name][row] = figure

    def write_counts(self, rows: npt.NDArray[np.int64], counts: Mapping[str, npt.NDArray[Any]]) -> None:
        """Do the same for many cards, a column at a time."""
        self.changes.note_all(np.unique(self._arrays["block"][rows]))
        for name in (*COUNTED, *SEEN):
            self._arrays[name][rows] = counts[name]
        limited = (counts["slots_left"] < 1) | (counts["cores_left"] < ALL_CORES)
        self.has_limits = self.has_limits or bool(limited.any())
        self.looks += 1
        self.has_streams = self.has_streams or bool(np.isfinite(counts["void_at"]).any())

    def fresh(self, *, now: float, max_age_s: float) -> npt.NDArray[np.bool_]:
        """Return by row whether there is an observation young enough to count."""
        young: npt.NDArray[np.bool_] = self.observed_at >= now - max_age_s
        return young & (self.void_at > now) if self.has_streams else young

    def is_fresh(self, row: int, *, now: float, max_age_s: float) -> bool:
        """The same for one row."""
        arrays = self._arrays
        return bool(arrays["observed_at"][row] >= now - max_age_s and arrays["void_at"][row] > now)

    def keep_promises(self, cards: Iterable[str]) -> bool:
        """Whether all these cards are known, and none of them promises more than it has."""
        rows = [self.row_of.get(uuid) for uuid in cards]
        return all(
            row is not None and min(self.free_books[row], self.slots_left[row], self.cores_left[row]) >= 0
            for row in rows
        )

    def write_times(
        self, number: int, *, at: float, void_at: float, utilization: Mapping[str, int | Unknown]
    ) -> None:
        """Say of every card of a block that it was seen again, with its memory as it was."""
        self.looks += 1
        block = self.blocks[number]
        rows = slice(block.start, block.start + block.width)
        self._arrays["observed_at"][rows] = at
        self._arrays["void_at"][rows] = void_at
        busy = (utilization[gpu.uuid] for gpu in block.gpus)
        self._arrays["utilization"][rows] = [np.nan if isinstance(each, Unknown) else each for each in busy]

    def know_kinds(self, kinds: Iterable[CardKind]) -> None:
        """Number kinds of cards in this order, before any of them is there."""
        for kind in kinds:
            self._intern_kind(kind)

    def per_block(self, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Count the rows of each block where `mask` holds."""
        if not self.blocks:
            return np.zeros(0, dtype=np.int64)
        return np.add.reduceat(mask, self.starts, dtype=np.int64)

    def lowest_per_block(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the smallest value of each block."""
        if not self.blocks:
            return np.zeros(0, dtype=np.int64)
        return np.minimum.reduceat(values, self.starts)

    def _write_static(self, rows: npt.NDArray[np.int64], gpus: Sequence[PhysicalGpu], margin: Mib) -> None:
        """Write what only the cards themselves decide; cards next to each other are mostly of one sort."""
        sorts, times = [], []
        for _, alike in groupby(gpus, key=OF_SORT):
            gpu, *others = alike
            sorts.append(self._sort_of(gpu, margin))
            times.append(1 + len(others))
        static = np.array(sorts, dtype=np.int64).repeat(times, axis=0)
        for place, name in enumerate(CardSort._fields):
            self._arrays[name][rows] = static[:, place]
        self.has_unified = self.has_unified or any(each.unified for each in sorts)
        self._arrays["node_mode"][rows] = 0

    def _sort_of(self, gpu: PhysicalGpu, margin: Mib) -> CardSort:
        """Return what is written of a card whatever is on it."""
        promise = promise_of(gpu, margin)
        return CardSort(
            promise,
            self._kind_of(promise, gpu),
            gpu.slots or 1,
            gpu.unified,
            -1 if gpu.numa is None else gpu.numa,
            self._intern(gpu.model),
            static_code(gpu),
        )

    def set_static_code(self, number: int, code: int | None) -> None:
        """Refuse every card of a block with one code, or (None) let each card speak for itself again."""
        block = self.blocks[number]
        codes = self._arrays["static_code"][block.start : block.start + block.width]
        new = [static_code(gpu) if code is None else code for gpu in block.gpus]
        if codes.tolist() != new:
            codes[:] = new
            self.layout = object()
            self.changes.note(number)

    def set_node_mode(self, number: int, own: RealtimeMode | None, *, enabled: bool) -> None:
        """Say which mode of the real-time check a block's node has of its own."""
        block = self.blocks[number]
        code = NODE_MODES.index((own, enabled and own is None))
        self.has_node_modes = self.has_node_modes or code != 0
        if self._arrays["node_mode"][block.start] != code:  # all rows of a block say the same
            self._arrays["node_mode"][block.start : block.start + block.width] = code
            self.changes.note(number)

    def _intern(self, model: str) -> int:
        index = self._model_index.get(model)
        if index is None:
            index = self._model_index[model] = len(self.models)
            self.models.append(model)
        return index

    def _kind_of(self, promise: int, gpu: PhysicalGpu) -> int:
        slots = gpu.slots or 1
        index = self._kind_index.get((promise, slots, gpu.model))  # type: ignore[call-overload]  # equal
        return self._intern_kind(CardKind(promise, slots, gpu.model)) if index is None else index

    def _intern_kind(self, kind: CardKind) -> int:
        self._kind_index[kind] = len(self.kinds)
        self.kinds.append(kind)
        return len(self.kinds) - 1

    def _take_block(self, node: int, gpus: tuple[PhysicalGpu, ...]) -> int:
        """Return a block for a node: one that waits for as many cards, or a new one."""
        waiting = self._idle.get(len(gpus))
        number = waiting.pop() if waiting else self._append_block(len(gpus))
        block = self.blocks[number]
        block.node, block.gpus = node, tuple(sorted(gpus, key=_BY_UUID))
        return number

    def _append_block(self, width: int) -> int:
        number = len(self.blocks)
        if self._size + width > len(self._gpu_at):
            self._gpu_at.extend([None] * max(width, len(self._gpu_at), 64))
        if self._size + width > len(self._arrays["block"]):
            for name, array in self._arrays.items():
                more = np.zeros(max(width, len(array)), dtype=array.dtype)
                self._arrays[name] = np.concatenate([array, more])
        if number == len(self._starts):
            self._starts = np.concatenate([self._starts, np.zeros_like(self._starts)])
            self._widths = np.concatenate([self._widths, np.zeros_like(self._widths)])
            self._node_of_block = np.concatenate([self._node_of_block, np.zeros_like(self._node_of_block)])
        self.blocks.append(Block(self._size, width))
        self._size += width
        for name in self._cut:
            del self.__dict__[name]
        self._cut.clear()
        return number


class _SomeColumns(GpuColumns):
    """Some rows of other columns, each field looked up when it is first asked for."""

    def __init__(
        self,
        arrays: dict[str, npt.NDArray[Any]],
        rows: npt.NDArray[np.int64] | slice,
        starts: npt.NDArray[np.int64],
        widths: npt.NDArray[np.int64],
        size: int,
    ) -> None:
        self._arrays, self._rows = arrays, rows
        self._starts, self._widths, self._size = starts, widths, size

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        if name not in _FIELDS:
            raise AttributeError(name)
        own = self.__dict__
        if name == "block":  # counted anew from 0
            field = np.arange(len(self._widths), dtype=np.int32).repeat(self._widths)
        else:
            field = own["_arrays"][name][own["_rows"]]
        own[name] = field
        return field


_FIRST = np.zeros(1, dtype=np.int64)
_SOME_BLOCK = Block(0, 0)
"""Stands for each block of a part: there only their number is of interest."""


def _no_rows() -> dict[str, npt.NDArray[Any]]:
    return {name: np.zeros(64, dtype=dtype) for name, dtype in _FIELDS.items()}
