"""Where each node of a fleet is: its number, and its block of columns."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from vramline.model.node import Node
from vramline.model.reason import CODE_OF, FITS, Reason

__all__ = ["NOT_HERE", "NodeNumbers", "Place", "code_of"]

NOT_HERE = -1
"""Number of a node that is not in the fleet."""


class _NumberOf(dict[str, int]):
    """Node numbers by name; a name of no node is `NOT_HERE`."""

    def __missing__(self, name: str) -> int:
        return NOT_HERE


class NodeNumbers:
    """Which node has which number; a number that nobody has any more is given to the next node."""

    __slots__ = ("_answered", "_asked", "_idle", "_of", "names", "version")

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names: list[str | None] = list(names)
        """By number; None: nobody has it now."""
        self.version = 0
        """Grows when a node gets a number or loses it."""
        self._of = _NumberOf((name, number) for number, name in enumerate(names))
        self._idle: list[int] = []
        self._asked: tuple[str, ...] = ()
        self._answered = np.zeros(0, dtype=np.int64)

    def copy(self) -> "NodeNumbers":
        """Return the same numbers, to be changed apart."""
        copy = NodeNumbers()
        copy.names, copy._of, copy._idle = list(self.names), _NumberOf(self._of), list(self._idle)
        return copy

    def give(self, names: Iterable[str]) -> list[int]:
        """Give numbers to nodes that have none."""
        found = []
        for name in names:
            number = self._idle.pop() if self._idle else len(self.names)
            if number == len(self.names):
                self.names.append(name)
            else:
                self.names[number] = name
            self._of[name] = number
            found.append(number)
        self._change()
        return found

    def take_back(self, name: str) -> None:
        """A node left."""
        number = self._of.pop(name)
        self.names[number] = None
        self._idle.append(number)
        self._change()

    def of(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the number of each node; not to be written to. The same tuple again costs nothing."""
        if names is not self._asked:
            numbers = np.fromiter(map(self._of.__getitem__, names), dtype=np.int64, count=len(names))
            self._asked, self._answered = tuple(names), numbers
        return self._answered

    def _change(self) -> None:
        self.version += 1
        self._asked, self._answered = (), np.zeros(0, dtype=np.int64)


class Place:
    """What the fleet keeps of one node."""

    __slots__ = ("block", "node", "number")

    def __init__(self, number: int, node: Node) -> None:
        self.number = number
        self.node = node
        self.block: int | None = None

    def copy(self) -> "Place":
        """Return the same place, to be changed apart."""
        copy = Place(self.number, self.node)
        copy.block = self.block
        return copy


def code_of(node: Node) -> int:
    """Return FITS, or why no GPU ask at all can go to a node."""
    if node.problem is not None:
        return CODE_OF[Reason(node.problem.kind.value)]
    return FITS if node.gpus else CODE_OF[Reason.NO_SUCH_GPU]
