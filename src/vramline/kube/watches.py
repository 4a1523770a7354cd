"""An open watch: from a stream of bytes to lines that say something."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import zip_longest
from typing import Generic, TypeVar

import msgspec

from vramline.kube.failures import ApiError, failure_of, read_status
from vramline.kube.http import AnswerLostError, Stream
from vramline.kube.objects import Resource, WatchLine, read_line
from vramline.kube.second_reader import SecondReader

__all__ = ["Watch", "WatchReader"]

T = TypeVar("T")
WatchReader = SecondReader[list[WatchLine[T] | None]]
"""A process that reads lines of a watch; None: a line that is still to be read."""


class Watch(Generic[T]):
    """An open watch."""

    def __init__(self, resource: Resource[T], stream: Stream, call: str, idle_s: float) -> None:
        self._resource = resource
        self._stream = stream
        self._call = call
        self._idle_s = idle_s
        self._rest = b""
        self._failure: ApiError | None = None
        self._second: WatchReader[T] | None = None
        self._given: asyncio.Queue[list[bytes] | AnswerLostError | None] = asyncio.Queue()
        """What arrived, in order, while another process reads: lines to be read here, None for a piece that
        is read there, an empty list at the end."""

    async def lines(self) -> list[WatchLine[T]]:
        """Return the lines that have arrived, at least one; none: the watch has ended.

        A line of type ERROR is raised as what it says, after those before it. Silence for longer than
        allowed is `UnavailableError`, as is a broken connection.
        """
        found: list[WatchLine[T]] = []
        while not found:
            if self._failure is not None:
                raise self._failure
            found, more = await (self._take() if self._second is None else self._take_over(self._second))
            if not more:
                break
        return found

    @asynccontextmanager
    async def read_by(self, second: WatchReader[T] | None) -> AsyncIterator[None]:
        """Let another process read, as long as it is open, for the rest of this watch."""
        if second is None or not second.is_open:
            yield
            return
        self._second = second
        passing = asyncio.create_task(self._pass_on(second))
        try:
            yield
        finally:
            passing.cancel()
            await second.close()

    async def _take(self) -> tuple[list[WatchLine[T]], bool]:
        """Read what has arrived; False: nothing will any more."""
        piece = await self._stream.read(self._idle_s)
        return self._until_error(self._split(piece)), bool(piece)

    async def _pass_on(self, second: WatchReader[T]) -> None:
        """Give what arrives to the other process; where there is none any more, to whoever asks for lines."""
        try:
            while piece := await self._stream.read(self._idle_s):
                texts = self._split(piece)
                if texts and second.is_open:
                    await second.give(b"\n".join(texts))
                    self._given.put_nowait(None)
                elif texts:
                    self._given.put_nowait(texts)
            self._given.put_nowait([])
        except AnswerLostError as error:
            self._given.put_nowait(error)

    async def _take_over(self, second: WatchReader[T]) -> tuple[list[WatchLine[T]], bool]:
        """Return what the other process has read."""
        given = await self._given.get()
        if isinstance(given, AnswerLostError):
            raise given
        if given is not None:
            return self._until_error(given), bool(given)
        piece, read = await second.take()
        if read is None:
            return self._until_error(piece.split(b"\n")), True
        if None in read:
            return self._until_error(piece.split(b"\n"), read), True
        return [line for line in read if line is not None], True

    def _split(self, piece: bytes) -> list[bytes]:
        """Return the lines that are whole now."""
        texts = piece.split(b"\n")
        texts[0] = self._rest + texts[0]
        self._rest = texts.pop()
        return texts

    def _until_error(
        self, texts: list[bytes], read: Iterable[WatchLine[T] | None] = ()
    ) -> list[WatchLine[T]]:
        """Read the lines of which `read` does not tell what they say, up to one that is an error."""
        found = []
        for text, known in zip_longest(texts, read):
            line = read_line(self._resource, text) if known is None else known
            if line.type == "ERROR" and isinstance(line.object, msgspec.Raw):
                status = read_status(line.object)
                self._failure = failure_of(self._call, status.code or 500, status, is_write=False)
                break
            found.append(line)
        return found
