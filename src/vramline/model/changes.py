"""Which of many numbered things changed when, so that whoever looked before looks at those alone."""

import numpy as np
import numpy.typing as npt

__all__ = ["Changes"]

_KEPT = 128
"""So many single changes, or more, are listed: nobody has to look for them among all things."""

Ints = npt.NDArray[np.int64]

_NONE = np.zeros(0, dtype=np.int64)
_NONE.flags.writeable = False


class Changes:
    """A version that grows with every change, and the version with which each thing last changed."""

    __slots__ = ("_last", "_size", "_stamps", "version")

    def __init__(self, size: int = 0, *, version: int = 0) -> None:
        """`size` is how many things are known at first; all of them changed with `version`."""
        self.version = version
        self._size = size
        self._stamps = np.full(size, version, dtype=np.int64)
        self._last: list[int] = []
        """What changed with each of the last versions, as long as it was one thing at a time."""

    def copy(self) -> "Changes":
        """Return the same, to go on from here."""
        copy = Changes(0, version=self.version)
        copy._size, copy._stamps, copy._last = self._size, self._stamps.copy(), list(self._last)
        return copy

    def note(self, number: int) -> None:
        """One thing changed."""
        self._make_room_for(number)
        self.version += 1
        self._stamps[number] = self.version
        self._last.append(number)
        if len(self._last) > 2 * _KEPT:
            del self._last[:_KEPT]

    def note_all(self, numbers: Ints) -> None:
        """Some things changed at once."""
        if len(numbers) == 1:
            self.note(int(numbers[0]))
            return
        if len(numbers):
            self._make_room_for(int(numbers.max()))
        self.version += 1
        self._stamps[numbers] = self.version
        self._last.clear()

    def _make_room_for(self, number: int) -> None:
        if number >= len(self._stamps):
            more = np.zeros(max(len(self._stamps), number + 1, 16), dtype=np.int64)
            self._stamps = np.concatenate([self._stamps, more])
        self._size = max(self._size, number + 1)

    def only_since(self, version: int) -> int | None:
        """Return the one thing that changed after a version; None: none, or several."""
        missed = self.version - version
        if 0 < missed <= len(self._last):
            number = self._last[-1]
            if missed == 1 or self._last[-missed:].count(number) == missed:
                return number
        return None

    def since(self, version: int) -> Ints:
        """Return what changed after a version, ascending."""
        missed = self.version - version
        if missed <= len(self._last):
            if not missed:
                return _NONE
            last = self._last[-missed:]
            return np.array(last if missed == 1 else sorted(set(last)), dtype=np.int64)
        return (self._stamps[: self._size] > version).nonzero()[0]
