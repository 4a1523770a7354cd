"""Another process that lists what there is at the start, and hands over what was read.

Reading tens of thousands of objects is most of what a start costs, and it needs nothing but the API server.
Where there is a second core, a copy of this process does it from the first moment on, while this one has time
for the rest. Whatever befalls it, the lists are asked for here instead: nothing depends on it.

What was read lies in a file in memory that both have, so that nobody waits for the other: a socket, which
tells how much there is, would take in no more than some hundred objects.
"""

import asyncio
import contextlib
import gc
import os
import random
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Generic, NoReturn, TypeVar

import msgspec
import uvloop

from vramline.errors import VramlineError
from vramline.kube.client import KubeClient, Selection
from vramline.kube.failures import InvalidError
from vramline.kube.objects import EVERYTHING, Item, Resource, read_bookmark
from vramline.kube.target import Target

__all__ = ["Packing", "Piece", "SecondLister"]

T = TypeVar("T")

_HEAD = 8
"""Bytes that tell the length of what follows."""
_SOME = 256
"""Objects that are handed over together."""
_SILENCE_S = 20.0
"""How long the API server may say nothing while it lists."""
_PATIENCE_S = 60.0
"""How long nothing may come from the other process."""
_MOST_FILES = 1 << 16


@dataclass(frozen=True, slots=True)
class Packing(Generic[T]):
    """One kind of objects, and how some of them go from one process to another."""

    resource: Resource[T]
    pack: Callable[[Sequence[Item[T]]], bytes]
    """Takes the objects apart: whoever packs them does not use them any more."""
    unpack: Callable[[bytes], list[Item[T]]]


class Piece(msgspec.Struct, Generic[T], frozen=True):
    """Some objects of a kind."""

    items: list[Item[T]]
    version: int
    """Of which all pieces together are true; 0: there are more to come."""


class _Notice(msgspec.Struct, frozen=True, array_like=True):
    """A piece that lies in the file."""

    plural: str
    start: int
    size: int
    version: int


_WRITE = msgspec.msgpack.Encoder()
_READ = msgspec.msgpack.Decoder(_Notice)


class SecondLister:
    """A process that lists some kinds, one after the other, and ends."""

    def __init__(self, target: Target, kinds: Sequence[Packing[Any]]) -> None:
        """Start it, before there are threads or an event loop; raises `OSError` where that cannot be."""
        self._kinds = {each.resource.plural: each for each in kinds}
        self._notices: dict[str, asyncio.Queue[_Notice | None]] = {}
        """By kind what there is to be read; None: nothing more will come."""
        self._hearing: asyncio.Task[None] | None = None
        self._unread = set(self._kinds)
        """Kinds of which something may lie in the file."""
        self._shared = os.fdopen(os.memfd_create("vramline-lists"), "r+b", buffering=0)
        self._socket, theirs = socket.socketpair()
        gc.freeze()  # what a collection touches would be copied
        self._pid = os.fork()
        if self._pid == 0:
            self._socket.close()
            _serve(theirs, self._shared.fileno(), target, kinds)
        gc.unfreeze()
        theirs.close()

    def lister(self, resource: Resource[T]) -> Callable[[], AsyncIterator[Piece[T]]] | None:
        """Return what yields all objects of a kind as they come, or ends too early where that fails.

        None: the kind is not listed there.
        """
        if resource.plural not in self._kinds:
            return None

        async def listen() -> AsyncIterator[Piece[T]]:
            if self._hearing is None:
                self._notices = {plural: asyncio.Queue() for plural in self._kinds}
                self._hearing = asyncio.create_task(self._hear())
            try:
                while (notice := await self._notices[resource.plural].get()) is not None:
                    yield self._take(notice)
            except (OSError, ValueError, msgspec.MsgspecError):  # ValueError: the file was closed
                pass  # whoever waits does it alone
            finally:
                self._unread.discard(resource.plural)
                if not self._unread:
                    self._shared.close()

        return listen

    async def close(self) -> None:
        """End the process, if it has not ended, and let go of what it left; it may be closed twice."""
        await self._end()
        self._shared.close()

    async def _end(self) -> None:
        pid, self._pid = self._pid, 0
        if pid:
            self._socket.close()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            await asyncio.to_thread(os.waitpid, pid, 0)

    async def _hear(self) -> None:
        """Take in what the process tells, until all of it is there or nothing more will come."""
        left = set(self._kinds)
        reader, writer = await asyncio.open_connection(sock=self._socket)
        try:
            while left:
                async with asyncio.timeout(_PATIENCE_S):
                    size = int.from_bytes(await reader.readexactly(_HEAD))
                    notice = _READ.decode(await reader.readexactly(size))
                self._notices[notice.plural].put_nowait(notice)
                if notice.version:
                    left.remove(notice.plural)
        except (OSError, EOFError, msgspec.MsgspecError):
            pass  # whoever waits does it alone
        finally:
            for notices in self._notices.values():
                notices.put_nowait(None)
            writer.close()
            await self._end()

    def _take(self, notice: _Notice) -> Piece[Any]:
        """Read a piece when it is its turn: what is read early is out of the caches when it is needed."""
        packed = os.pread(self._shared.fileno(), notice.size, notice.start)
        return Piece(self._kinds[notice.plural].unpack(packed), notice.version)


# ── the other process ────────────────────────────────────────────────────────────────────────────────
def _serve(link: socket.socket, shared: int, target: Target, kinds: Sequence[Packing[Any]]) -> None:
    """List, hand over, and end without a trace of the parent."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        gc.disable()
        _let_go_of_all_but(link.fileno(), shared)
        with os.fdopen(shared, "wb") as file:
            uvloop.run(_list_and_end(link, file, target, kinds))
    finally:
        os._exit(0)


def _let_go_of_all_but(*kept: int) -> None:
    """Close every file but some and those of the terminal: sockets of the parent are none of our business."""
    first = 3
    for number in sorted(kept):
        os.closerange(first, number)
        first = number + 1
    os.closerange(first, _MOST_FILES)


async def _list_and_end(
    link: socket.socket, file: BinaryIO, target: Target, kinds: Sequence[Packing[Any]]
) -> NoReturn:
    """Do not leave the loop: where the parent had one before, this one would wait for files let go of."""
    try:
        await _list_all(link, file, target, kinds)
    except (OSError, VramlineError):
        pass  # the parent finds out, and asks by itself
    finally:
        os._exit(0)


async def _list_all(
    link: socket.socket, file: BinaryIO, target: Target, kinds: Sequence[Packing[Any]]
) -> None:
    """List kind after kind, and tell of every piece once it can be read."""
    reader, writer = await asyncio.open_connection(sock=link)
    orphaned = asyncio.create_task(_end_with_parent(reader))
    start = 0
    async with KubeClient(target, rng=random.Random()) as client:  # noqa: S311 — jitter, not secrets
        for kind in kinds:
            async for items, version in _pieces(client, kind.resource):
                size = file.write(kind.pack(items))
                file.flush()
                notice = _WRITE.encode(_Notice(kind.resource.plural, start, size, version))
                writer.write(len(notice).to_bytes(_HEAD) + notice)
                start += size
                await asyncio.sleep(0)
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    orphaned.cancel()


async def _end_with_parent(reader: asyncio.StreamReader) -> None:
    """Nothing is ever said in this direction: what comes is the end."""
    await reader.read()
    os._exit(0)


async def _pieces(client: KubeClient, resource: Resource[T]) -> AsyncIterator[tuple[list[Item[T]], int]]:
    """Yield all objects of a kind, some at a time; the last piece comes with the version of them all."""
    try:
        async for piece in _streamed(client, resource):
            yield piece
    except InvalidError:
        listing = await client.list(resource)
        yield [*listing.items, *listing.unreadable], listing.version


async def _streamed(client: KubeClient, resource: Resource[T]) -> AsyncIterator[tuple[list[Item[T]], int]]:
    items: list[Item[T]] = []
    async with client.watch(resource, Selection(), EVERYTHING, idle_s=_SILENCE_S) as watch:
        while lines := await watch.lines():
            for line in lines:
                if line.type != "BOOKMARK" or not isinstance(line.object, msgspec.Raw):
                    items.append(line.item(resource))
                    continue
                version, is_end = read_bookmark(line.object)
                if is_end:
                    yield items, version
                    return
            if len(items) >= _SOME:
                yield items, 0
                items = []
