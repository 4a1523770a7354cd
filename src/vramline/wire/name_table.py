"""Thousands of names in one JSON list, looked up at once, without making an object of any of them.

kube-scheduler sends the names of all nodes with every pod, in an order that changes. Decoding them and
looking up one after the other costs more than deciding. Here the text stays text: its quotes say where the
names are, eight bytes at a time are numbers that can be compared, and answers are cut out of the request.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["FoundNames", "NameTable"]

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int32]

_QUOTE, _COMMA = ord('"'), ord(",")
_BETWEEN, _THREE_BYTES = np.uint32(int.from_bytes(b'","', "little")), np.uint32(0xFFFFFF)
"""What is between two names, in the bytes from the end of one on."""
_SHORTEST = len('"a",')
_EMPTY = -1
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)
"""By number of bytes: what of a word belongs to them."""
_MOST_WORDS = 32
"""Of a name: Kubernetes allows 253 characters."""
_ODD = (np.arange(1, _MOST_WORDS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
_MIX = np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True, slots=True)
class FoundNames:
    """The names of a list, by their numbers, and where in the text they are."""

    text: bytes
    numbers: Ints
    _sizes: Ints | int
    """How many letters each takes, quotes and comma included; one number: all of them take as many."""

    def groups(self, keys: Ints) -> Iterator[tuple[int, bytes]]:
        """Yield every key (0 to 2^15 − 1), lowest first, with the names that have it, in their order.

        They come as they stand in the text: each in quotes, with a comma behind.
        """
        order = keys.astype(np.int16).argsort(kind="stable")  # few bits are counted, not compared
        sorted_keys = keys.take(order)
        lasts = np.append(sorted_keys[1:] != sorted_keys[:-1], True).nonzero()[0]
        letters = np.frombuffer(self.text[1:-1] + b",", dtype=np.uint8)
        sizes = self._sizes
        if isinstance(sizes, int):
            moved, ends = letters.reshape(-1, sizes).take(order, axis=0).tobytes(), (lasts + 1) * sizes
        else:
            begins, sizes = (np.cumsum(sizes) - sizes)[order], sizes[order]
            ends = np.cumsum(sizes)
            index = np.repeat(begins - (ends - sizes), sizes) + np.arange(ends[-1])
            moved, ends = letters[index].tobytes(), ends[lasts]
        start = 0
        for key, end in zip(sorted_keys[lasts].tolist(), ends.tolist(), strict=True):
            yield key, moved[start:end]
            start = end


class NameTable:
    """Finds names again; built anew when a name comes or goes."""

    def __init__(self, names: Sequence[str | None]) -> None:
        """`names` by number; None: the number has no name."""
        known = [(number, name.encode()) for number, name in enumerate(names) if name]
        self._width = max((len(name) + 7 for _, name in known), default=8) // 8
        self._numbers = np.array([number for number, _ in known], dtype=np.int64)
        self._sizes = np.array([len(name) + 3 for _, name in known], dtype=np.int64)
        packed = np.array([name for _, name in known], dtype=f"S{8 * self._width}")
        self._words = list(np.ascontiguousarray(packed.view("<u8").reshape(len(known), self._width).T))
        bits = max(4, (8 * len(known)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._slots = np.full(1 << bits, _EMPTY, dtype=np.int32)
        for place, slot in enumerate(self._first_slots(_hash(self._words)).tolist()):
            while self._slots[slot] != _EMPTY:
                slot = (slot + 1) % len(self._slots)  # noqa: PLW2901 — the next one
            self._slots[slot] = place

    def find(self, text: bytes) -> FoundNames | None:
        """Return the numbers of the names in a JSON list of them.

        None: it is no plain list of names, or one of them is not known, so that it has to be read otherwise.
        """
        if not text.startswith(b'["') or not text.endswith(b'"]') or b"\\" in text or not len(self._numbers):
            return None
        return self._find_even(text) or self._find_any(text)

    def _find_even(self, text: bytes) -> FoundNames | None:
        """Find names that are equally long, as those of nodes often are: they stand in lines of letters."""
        size = text.find(b'"', 2) + 1
        if size < _SHORTEST or (len(text) - 1) % size or size - 3 > 8 * self._width:
            return None
        count = (len(text) - 1) // size
        padded = text[1:-1] + b',"' + bytes(8 * self._width)
        between = np.ndarray((count,), "<u4", buffer=padded, offset=size - 2, strides=(size,))
        if ((between ^ _BETWEEN) & _THREE_BYTES).any():
            return None
        words: list[Words] = []
        for start in range(0, 8 * self._width, 8):
            read: Words = np.ndarray((count,), "<u8", buffer=padded, offset=1 + start, strides=(size,))
            words.append(read & _MASKS[min(max(size - 3 - start, 0), 8)])
        return self._found(text, words, size)

    def _find_any(self, text: bytes) -> FoundNames | None:
        bounds = _bounds(text)
        if bounds is None:
            return None
        starts, lengths = bounds
        if int(lengths.max()) > 8 * self._width:
            return None
        return self._found(text, self._read_words(text, starts, lengths), lengths + 3)

    def _found(self, text: bytes, words: list[Words], sizes: Ints | int) -> FoundNames | None:
        """Return the names that are made of these words, if all are known."""
        slots = self._first_slots(_hash(words))
        places = self._slots.take(slots)
        others = self._differ(places, words, sizes)
        while len(others):  # the slot is taken by another name: one after it may be theirs
            if places[others].min() == _EMPTY:
                return None
            slots[others] = (slots[others] + 1) % len(self._slots)
            places[others] = self._slots[slots[others]]
            theirs = [word[others] for word in words]
            which = sizes if isinstance(sizes, int) else sizes[others]
            others = others[self._differ(places[others], theirs, which)]
        return FoundNames(text, self._numbers.take(places), sizes)

    def _differ(self, places: Places, words: list[Words], sizes: Ints | int) -> Ints:
        """Return which of these names are not those at these places; nobody is at an empty one."""
        differ = self._sizes.take(places) != sizes
        for ours, theirs in zip(self._words, words, strict=True):
            differ |= ours.take(places) != theirs
        found: Ints = (differ | (places == _EMPTY)).nonzero()[0]
        return found

    def _read_words(self, text: bytes, starts: Ints, lengths: Ints) -> list[Words]:
        """Return the names eight bytes at a time, with zeros behind their ends."""
        padded = text + bytes(8 * self._width)
        at_every_byte: Words = np.ndarray((len(padded) - 7,), dtype="<u8", buffer=padded, strides=(1,))
        return [
            at_every_byte[starts + 8 * place] & _MASKS[np.clip(lengths - 8 * place, 0, 8)]
            for place in range(self._width)
        ]

    def _first_slots(self, hashes: Words) -> Ints:
        return (hashes >> self._shift).view(np.int64)


def _hash(words: list[Words]) -> Words:
    """Return a number for each name; `words` are the first eight bytes of all, then the next, and so on."""
    mixed = np.zeros(len(words[0]), dtype=np.uint64)
    for word, odd in zip(words, _ODD, strict=False):
        mixed ^= word
        mixed *= odd
        mixed ^= mixed >> np.uint64(32)
    return mixed * _MIX


def _bounds(text: bytes) -> tuple[Ints, Ints] | None:
    """Return where names start and how long they are; None: what is between `["` and `"]` is no list."""
    raw = np.frombuffer(text, dtype=np.uint8)
    quotes = np.flatnonzero(raw == _QUOTE)
    starts, ends = quotes[0::2] + 1, quotes[1::2]
    if len(quotes) % 2 or ends[-1] != len(text) - 2 or not (starts[1:] - ends[:-1] == 3).all():
        return None
    return (starts, ends - starts) if (raw[ends[:-1] + 1] == _COMMA).all() else None
