"""What binds and upkeep work with together."""

from collections.abc import Callable
from dataclasses import dataclass

from vramline.binder.books import Books
from vramline.binder.holds import Holds
from vramline.binder.maker import Maker
from vramline.binder.requests import Requests
from vramline.binder.store import BinderStore

__all__ = ["Parts"]


@dataclass(frozen=True, slots=True)
class Parts:
    """State of the cluster, reservation pods, requests, and where they are written."""

    books: Books
    holds: Holds
    maker: Maker
    requests: Requests
    store: BinderStore
    clock: Callable[[], float]
    """Seconds that only grow."""
