"""CPU, memory and pod places of every node: what kube-scheduler counts.

The embedded cluster refuses nodes by it. Against a real cluster kube-scheduler has done that before it asks;
there it serves to guess ahead, and policies look at it that weigh CPU against GPU memory.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from vramline.model.changes import Changes
from vramline.model.node import HostRoom, Node
from vramline.model.pod import HostNeeds
from vramline.units import Mib

__all__ = ["HostColumns", "requests_of"]

_NO_LIMIT = 2**62


class HostColumns:
    """What is left of each node besides GPUs, by node number of the fleet."""

    def __init__(self, size: int = 16) -> None:
        """`size` is for how many node numbers there is room at first; it grows."""
        self._show(np.zeros((3, size), dtype=np.int64))
        self.changes = Changes()
        """Of nodes."""

    def set_node(self, number: int, node: Node, taken: Sequence[HostNeeds] = ()) -> None:
        """Write a node's room with what is taken of it; other pods are taken off again by the caller."""
        self._make_room_for(number)
        self.changes.note(number)
        self.cpu_milli[number], self.memory_bytes[number], self.pods[number] = _left(node.host, taken)

    def set_nodes(
        self, numbers: npt.NDArray[np.int64], rooms: Sequence[tuple[HostRoom, Sequence[HostNeeds]]]
    ) -> None:
        """Do the same for many nodes, each once."""
        if rooms:
            self._make_room_for(int(numbers.max()))
            self.changes.note_all(numbers)
            left = np.array([_left(room, taken) for room, taken in rooms], dtype=np.int64)
            self.left[:, numbers] = left.T

    def _make_room_for(self, number: int) -> None:
        size = len(self.cpu_milli)
        if number >= size:
            more = np.zeros((3, max(size, number + 1)), dtype=np.int64)
            self._show(np.concatenate([self.left, more], axis=1))

    def copy(self) -> "HostColumns":
        """Return the same room, to try something on."""
        copy = HostColumns(0)
        copy._show(self.left.copy())
        return copy

    def only(self, number: int) -> "HostColumns":
        """Return a copy of one node's room, as that of node 0."""
        alone = HostColumns(1)
        alone._show(self.left[:, number : number + 1].copy())
        return alone

    def _show(self, left: npt.NDArray[np.int64]) -> None:
        self.left = left
        """CPU, memory and places for pods, one under the other."""
        self.cpu_milli, self.memory_bytes, self.pods = left

    def take(self, number: int, needs: HostNeeds) -> None:
        """A pod goes to the node."""
        self._add(number, needs, -1)

    def give_back(self, number: int, needs: HostNeeds) -> None:
        """A pod left the node."""
        self._add(number, needs, 1)

    def _add(self, number: int, needs: HostNeeds, sign: int) -> None:
        self.changes.note(number)
        cpu_milli, memory_bytes, pods = self.left[:, number].tolist()
        self.cpu_milli[number] = _bounded(cpu_milli + sign * needs.cpu_milli)
        self.memory_bytes[number] = _bounded(memory_bytes + sign * needs.memory_bytes)
        self.pods[number] = pods + sign


def requests_of(pods: Iterable[tuple[str, HostNeeds]]) -> dict[str, Mib]:
    """Return what pods (UID and needs) request as memory, in whole MiB; who requests none is left out."""
    return {uid: Mib(-(-needs.memory_bytes // 2**20)) for uid, needs in pods if needs.memory_bytes}


def _bounded(amount: int) -> int:
    """Return what the columns can hold: thousands of pods may claim to need more than any machine has."""
    return max(-_NO_LIMIT, min(amount, _NO_LIMIT))


def _left(room: HostRoom, taken: Sequence[HostNeeds]) -> tuple[int, int, int]:
    """Return CPU, memory and pod places that are left."""
    cpu_milli = _NO_LIMIT if room.cpu_milli is None else room.cpu_milli
    memory_bytes = _NO_LIMIT if room.memory_bytes is None else room.memory_bytes
    places = _NO_LIMIT if room.pods is None else room.pods
    return (
        _bounded(cpu_milli - sum([each.cpu_milli for each in taken])),
        _bounded(memory_bytes - sum([each.memory_bytes for each in taken])),
        places - len(taken),
    )
