"""Nodes to be read once, at the end, while everything comes at once."""

__all__ = ["Backlog"]


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

    def finish(self) -> list[str]:
        """Return what was collected, in order, and collect no more."""
        names, self._names = self._names, None
        return sorted(names or ())
