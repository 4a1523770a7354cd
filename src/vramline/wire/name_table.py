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

_QUOTE, _COMMA = ord('"'), ord(",")
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
    _lengths: Ints

    def groups(self, keys: Ints) -> Iterator[tuple[int, bytes]]:
        """Yield every key (0 to 2^15 − 1), lowest first, with the names that have it, in their order.

        They come as they stand in the text: each in quotes, with a comma behind.
        """
        sizes = self._lengths + 3
        begins = np.cumsum(sizes) - sizes
        order = np.argsort(keys.astype(np.int16), kind="stable")  # few bits are counted, not compared
        sizes, sorted_keys = sizes[order], keys[order]
        ends = np.cumsum(sizes)
        letters = np.frombuffer(self.text[1:-1] + b",", dtype=np.uint8)
        if sizes.min() == sizes.max():  # names of nodes are often equally long
            moved = letters.reshape(len(order), -1)[order].tobytes()
        else:
            index = np.repeat(begins[order] - (ends - sizes), sizes) + np.arange(ends[-1])
            moved = letters[index].tobytes()
        lasts = np.flatnonzero(np.append(sorted_keys[1:] != sorted_keys[:-1], True))
        start = 0
        for last in lasts.tolist():
            yield int(sorted_keys[last]), moved[start : int(ends[last])]
            start = int(ends[last])


class NameTable:
    """Finds names again; built anew when a name comes or goes."""

    def __init__(self, names: Sequence[str | None]) -> None:
        """`names` by number; None: the number has no name."""
        known = [(number, name.encode()) for number, name in enumerate(names) if name]
        self._width = max((len(name) + 7 for _, name in known), default=8) // 8
        self._numbers = np.array([number for number, _ in known], dtype=np.int64)
        self._lengths = np.array([len(name) for _, name in known], dtype=np.int64)
        packed = np.array([name for _, name in known], dtype=f"S{8 * self._width}")
        self._words = list(np.ascontiguousarray(packed.view("<u8").reshape(len(known), self._width).T))
        self._hashes = _hash(self._words)
        bits = max(4, (8 * len(known)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._slots = np.full(1 << bits, _EMPTY, dtype=np.int64)
        for place, slot in enumerate(self._first_slots(self._hashes).tolist()):
            while self._slots[slot] != _EMPTY:
                slot = (slot + 1) % len(self._slots)  # noqa: PLW2901 — the next one
            self._slots[slot] = place

    def find(self, text: bytes) -> FoundNames | None:
        """Return the numbers of the names in a JSON list of them.

        None: it is no plain list of names, or one of them is not known, so that it has to be read otherwise.
        """
        bounds = _bounds(text)
        if bounds is None:
            return None
        starts, lengths = bounds
        if int(lengths.max()) > 8 * self._width or not len(self._numbers):
            return None
        words = self._read_words(text, starts, lengths)
        places = self._look_up(_hash(words))
        if places is None:
            return None
        pairs = zip((self._lengths, *self._words), (lengths, *words), strict=True)
        same = all((ours[places] == theirs).all() for ours, theirs in pairs)
        return FoundNames(text, self._numbers[places], lengths) if same else None

    def _read_words(self, text: bytes, starts: Ints, lengths: Ints) -> list[Words]:
        """Return the names eight bytes at a time, with zeros behind their ends."""
        padded = text + bytes(8 * self._width)
        at_every_byte: Words = np.ndarray((len(padded) - 7,), dtype="<u8", buffer=padded, strides=(1,))
        return [
            at_every_byte[starts + 8 * place] & _MASKS[np.clip(lengths - 8 * place, 0, 8)]
            for place in range(self._width)
        ]

    def _look_up(self, hashes: Words) -> Ints | None:
        slots = self._first_slots(hashes)
        places = self._slots[slots]
        while True:
            if (places == _EMPTY).any():
                return None
            others = np.flatnonzero(self._hashes[places] != hashes)
            if not len(others):
                return places
            slots[others] = (slots[others] + 1) % len(self._slots)
            places[others] = self._slots[slots[others]]

    def _first_slots(self, hashes: Words) -> Ints:
        return (hashes >> self._shift).astype(np.int64)


def _hash(words: list[Words]) -> Words:
    """Return a number for each name; `words` are the first eight bytes of all, then the next, and so on."""
    mixed = np.zeros(len(words[0]), dtype=np.uint64)
    for word, odd in zip(words, _ODD, strict=False):
        mixed ^= word
        mixed *= odd
        mixed ^= mixed >> np.uint64(32)
    return mixed * _MIX


def _bounds(text: bytes) -> tuple[Ints, Ints] | None:
    """Return where names start and how long they are; None: the text is not exactly `["a","b"]`."""
    if not text.startswith(b'["') or not text.endswith(b'"]') or b"\\" in text:
        return None
    raw = np.frombuffer(text, dtype=np.uint8)
    quotes = np.flatnonzero(raw == _QUOTE)
    starts, ends = quotes[0::2] + 1, quotes[1::2]
    if len(quotes) % 2 or ends[-1] != len(text) - 2 or not (starts[1:] - ends[:-1] == 3).all():
        return None
    return (starts, ends - starts) if (raw[ends[:-1] + 1] == _COMMA).all() else None
