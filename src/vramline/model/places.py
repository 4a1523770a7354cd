"""Where each node of a fleet is: its number, and its block of columns."""

from vramline.model.node import Node
from vramline.model.reason import CODE_OF, FITS, Reason

__all__ = ["NOT_HERE", "NumberOf", "Place", "code_of"]

NOT_HERE = -1
"""Number of a node that is not in the fleet."""


class NumberOf(dict[str, int]):
    """Node numbers by name; a name of no node is `NOT_HERE`."""

    def __missing__(self, name: str) -> int:
        return NOT_HERE


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
