"""Another process that reads lines of a watch, while everything there is comes in at once.

Reading tens of thousands of pods is most of what a start costs, and it needs nothing but their bytes. Where
there is a second core, a copy of this process does it and hands back what is left of each line; this one has
time for the rest meanwhile. Whatever befalls it, the lines are read here instead: nothing depends on it.
"""

import asyncio
import contextlib
import gc
import os
import signal
import socket
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

__all__ = ["SecondReader"]

T = TypeVar("T")

_HEAD = 8
"""Bytes that tell the length of what follows."""
_MOST_UNDER_WAY = 4
"""Pieces that are given before the first has to be back: more of them would only take memory."""
_PATIENCE_S = 30.0
"""How long an answer is waited for; it takes some milliseconds."""
_BUFFER = 1 << 22
_MOST_FILES = 1 << 16


class SecondReader(Generic[T]):
    """A process that serves until `close`, or until this one ends."""

    def __init__(self, work: Callable[[bytes], bytes], unpack: Callable[[bytes], T]) -> None:
        """Start it, before there are threads or an event loop. `work` is done there, `unpack` here."""
        self._unpack = unpack
        self.under_way: deque[bytes] = deque()
        """Pieces that were given and not taken back."""
        self._room = asyncio.Semaphore(_MOST_UNDER_WAY)
        self._is_broken = False
        self._connecting = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._socket, theirs = socket.socketpair()
        gc.freeze()  # what a collection touches would be copied
        self._pid = os.fork()
        if self._pid == 0:
            self._socket.close()
            _serve(theirs, work)
        gc.unfreeze()
        theirs.close()

    @property
    def is_open(self) -> bool:
        """Whether there is a process to give anything to."""
        return self._pid != 0 and not self._is_broken

    async def give(self, piece: bytes) -> None:
        """Hand over some bytes; waits while too many are under way."""
        await self._room.acquire()
        self.under_way.append(piece)
        with contextlib.suppress(OSError):
            _, writer = await self._connect()
            writer.write(len(piece).to_bytes(_HEAD))
            writer.write(piece)
            await writer.drain()

    async def take(self) -> tuple[bytes, T | None]:
        """Return the piece that was given first, and what became of it; None: nothing did."""
        piece, answer = self.under_way[0], None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                reader, _ = await self._connect()
                size = int.from_bytes(await reader.readexactly(_HEAD))
                answer = self._unpack(await reader.readexactly(size))
        except (OSError, asyncio.IncompleteReadError, msgspec.MsgspecError):
            self._give_up()
        self.under_way.popleft()
        self._room.release()
        return piece, answer

    def _give_up(self) -> None:
        """Take no answer any more: one that comes late would be taken for another's."""
        if self.is_open:
            self._is_broken = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    async def close(self) -> None:
        """End the process; it may be closed twice."""
        self._give_up()
        pid, self._pid = self._pid, 0
        if self._streams is not None:
            self._streams[1].close()
        self._socket.close()
        if pid:
            await asyncio.to_thread(os.waitpid, pid, 0)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with self._connecting:
            if not self.is_open:
                raise ConnectionError("closed")
            if self._streams is None:
                self._streams = await asyncio.open_connection(sock=self._socket, limit=_BUFFER)
        return self._streams


def _serve(link: socket.socket, work: Callable[[bytes], bytes]) -> None:
    """Do the work piece by piece until the other side closes, and end without a trace of the parent."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        gc.disable()
        _let_go_of_all_but(link.fileno())
        with link.makefile("rb", buffering=_BUFFER) as given:
            while head := given.read(_HEAD):
                answer = work(given.read(int.from_bytes(head)))
                link.sendall(len(answer).to_bytes(_HEAD) + answer)
    except OSError:
        pass  # nobody wants it any more
    finally:
        os._exit(0)


def _let_go_of_all_but(kept: int) -> None:
    """Close every file but one and those of the terminal: sockets of the parent are none of our business."""
    os.closerange(3, kept)
    os.closerange(kept + 1, _MOST_FILES)
