"""Nodes to be read once, while everything comes at once: at the end, or while pods are yet to come."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from vramline.model.fleet import Fleet

__all__ = ["Backlog"]


_SOME = 64
"""Nodes that are read together: so few that what was read of them is at hand when their cards are counted."""


class Backlog:
    """Collects names of nodes between start and finish, and nothing at other times."""

    def __init__(self) -> None:
        self._names: set[str] | None = None
        self._placed: set[str] = set()
        """Nodes that were read ahead and have not changed since; only who is on them is to be found out."""

    @property
    def is_open(self) -> bool:
        """Whether nodes are to be read later."""
        return self._names is not None

    def start(self) -> None:
        """Everything is about to be listed: what it means is worked out when all of it is there."""
        self._names, self._placed = set(), set()

    def takes(self, name: str, *, changed: bool) -> bool:
        """Whether a node is to be read later; `changed`: the node itself, not only who is on it."""
        if self._names is None:
            return False
        self._names.add(name)
        if changed:
            self._placed.discard(name)
        return True

    def take_all(self, names: Iterable[str]) -> None:
        """Note that it is to be found out later who is on these nodes; only while it is open."""
        if self._names is not None:
            self._names.update(names)

    def read_ahead(self, fleet: Fleet, place: Callable[[Sequence[str]], None]) -> Iterator[None]:
        """Read nodes that are known already, some at every step, until there are no more, or `finish`."""
        while left := (self._names or set()) - self._placed:
            for names in _some_of(left):
                if self._names is not None:
                    with fleet.gathering(counts=False):
                        place(names)
                    self._placed.update(names)
                    yield

    def finish(
        self, fleet: Fleet, place: Callable[[Sequence[str]], None], settle: Callable[[str], None]
    ) -> None:
        """Collect no more, read the nodes that were not read ahead, and `settle` of each who is on it."""
        names, placed, self._names, self._placed = self._names or set(), self._placed, None, set()
        with fleet.gathering():
            for some in _some_of(names - placed):
                place(some)
            for name in sorted(names):
                settle(name)


def _some_of(names: set[str]) -> Iterator[list[str]]:
    """Yield the names in order, some at a time."""
    order = sorted(names)
    for start in range(0, len(order), _SOME):
        yield order[start : start + _SOME]
