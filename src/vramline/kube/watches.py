"""An open watch: from a stream of bytes to lines that say something."""

from typing import Generic, TypeVar

import msgspec

from vramline.kube.failures import ApiError, failure_of, read_status
from vramline.kube.http import Stream
from vramline.kube.objects import Resource, WatchLine, read_line

__all__ = ["Watch"]

T = TypeVar("T")


class Watch(Generic[T]):
    """An open watch."""

    def __init__(self, resource: Resource[T], stream: Stream, call: str, idle_s: float) -> None:
        self._resource = resource
        self._stream = stream
        self._call = call
        self._idle_s = idle_s
        self._rest = b""
        self._failure: ApiError | None = None

    async def lines(self) -> list[WatchLine[T]]:
        """Return the lines that have arrived, at least one; none: the watch has ended.

        A line of type ERROR is raised as what it says, after those before it. Silence for longer than
        allowed is `UnavailableError`, as is a broken connection.
        """
        found: list[WatchLine[T]] = []
        while not found:
            if self._failure is not None:
                raise self._failure
            found, more = await self._take()
            if not more:
                break
        return found

    async def _take(self) -> tuple[list[WatchLine[T]], bool]:
        """Read what has arrived; False: nothing will any more."""
        piece = await self._stream.read(self._idle_s)
        return self._until_error(self._split(piece)), bool(piece)

    def _split(self, piece: bytes) -> list[bytes]:
        """Return the lines that are whole now."""
        texts = piece.split(b"\n")
        texts[0] = self._rest + texts[0]
        self._rest = texts.pop()
        return texts

    def _until_error(self, texts: list[bytes]) -> list[WatchLine[T]]:
        """Read the lines, up to one that is an error."""
        found = []
        for text in texts:
            line = read_line(self._resource, text)
            if line.type == "ERROR" and isinstance(line.object, msgspec.Raw):
                status = read_status(line.object)
                self._failure = failure_of(self._call, status.code or 500, status, is_write=False)
                break
            found.append(line)
        return found
