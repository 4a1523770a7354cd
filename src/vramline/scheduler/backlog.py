"""Nodes to be read once, at the end, while everything comes at once."""

__all__ = ["Backlog"]


_SOME = 64
"""Nodes that are read together: so few that what was read of them is at hand when their cards are counted."""


class Backlog:
    """Collects names of nodes between start and finish, and nothing at other times."""

    def __init__(self) -> None:
        self._names: set[str] | None = None

    def start(self) -> None:
        """Everything is about to be listed: what it means is worked out when all of it is there."""
        self._names = set()

    def takes(self, name: str) -> bool:
        """Whether a node is to be read later."""
        if self._names is not None:
            self._names.add(name)
        return self._names is not None

    def finish(self) -> list[list[str]]:
        """Return what was collected, in order and some at a time, and collect no more."""
        names, self._names = sorted(self._names or ()), None
        return [names[start : start + _SOME] for start in range(0, len(names), _SOME)]
