"""uvicorn inside a process that has other things to do."""

import contextlib
from collections.abc import Iterator

import uvicorn

__all__ = ["QuietServer"]


class QuietServer(uvicorn.Server):
    """Leaves signals to its owner."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handler."""
        yield
