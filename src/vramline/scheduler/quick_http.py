"""HTTP for what kube-scheduler asks about every pod: one parse, one task, one write.

uvicorn serves everything else. It sends the head of an answer and its body in two writes, and between the
two a kube-scheduler on the same machine is woken, finds half an answer, and goes to sleep again; scope,
cycle and events cost more than many of the answers. A request that is not exactly what Go's client sends
(an exact first line, one length, no surprises) takes uvicorn's way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

__all__ = ["HotAnswer", "QuickProtocol", "quick_protocol"]

HotAnswer = Callable[[bytes], Awaitable[tuple[int, bytes]]]
"""From a request's body to status and JSON."""

_LENGTH = b"\r\ncontent-length:"
_SURPRISES = (b"\r\ntransfer-encoding:", b"\r\nexpect:", b"\r\nconnection:", b"\r\nupgrade:")
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class _Rest(HttpToolsProtocol):
    """What uvicorn does with a connection."""

    has_request = False

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        super().__init__(config, server_state, app_state)
        self.connections = set()  # the server is to speak to the protocol that has this one

    def on_message_begin(self) -> None:
        """A request starts."""
        self.has_request = True
        super().on_message_begin()

    def on_response_complete(self) -> None:
        """A request is answered."""
        self.has_request = bool(self.pipeline)
        super().on_response_complete()


class QuickProtocol(asyncio.Protocol):
    """One connection. Without pipelining: what comes before an answer was sent waits for it.

    kube-scheduler keeps two connections and dials anew for every further call at the same time, so what
    uvicorn needs is made only for who needs uvicorn.
    """

    def __init__(
        self,
        *,
        answers: Mapping[bytes, HotAnswer],
        longest: int,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """`answers` by first line; a body longer than `longest` bytes is left to uvicorn."""
        self._answers = answers
        self._longest = longest
        self._state = server_state
        self._make_rest = partial(_Rest, config, server_state, app_state)
        self._rest: _Rest | None = None
        self._loop = asyncio.get_running_loop()
        self._idle_s = config.timeout_keep_alive
        self._idle: asyncio.TimerHandle | None = None
        self._transport = cast("asyncio.Transport", None)
        self._hot: HotAnswer | None = None
        """What answers the request that is arriving or being answered."""
        self._missing = 0
        self._pieces: list[bytes] = []
        self._early = b""
        self._closes = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody dialled."""
        self._transport = cast("asyncio.Transport", transport)
        self._state.connections.add(cast("Any", self))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        self._state.connections.discard(cast("Any", self))
        self._stop_idling()
        if self._rest is not None:
            self._rest.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in what arrived."""
        self._stop_idling()
        if self._hot is not None:
            self._take_body(self._hot, data)
        elif (self._rest is not None and self._rest.has_request) or not self._starts_hot(data):
            self._of_uvicorn().data_received(data)

    def pause_writing(self) -> None:
        """The other end is slow to read."""
        if self._rest is not None:
            self._rest.pause_writing()

    def resume_writing(self) -> None:
        """The other end has read."""
        if self._rest is not None:
            self._rest.resume_writing()

    def shutdown(self) -> None:
        """Close, after the answer where one is under way."""
        if self._hot is not None:
            self._closes = True
        elif self._rest is not None:
            self._rest.shutdown()
        else:
            self._transport.close()

    def _of_uvicorn(self) -> _Rest:
        if self._rest is None:
            self._rest = self._make_rest()
            self._rest.connection_made(self._transport)
        return self._rest

    def _starts_hot(self, data: bytes) -> bool:
        """Whether these bytes start a request that is answered here; if so, take it."""
        answer = self._answers.get(data[: data.find(b"\r\n")])
        if answer is None:
            return False
        end = data.find(b"\r\n\r\n")
        length = _length_of(data[:end].lower()) if end > 0 else None
        if length is None or length > self._longest:
            return False
        self._hot, self._missing = answer, length
        self._take_body(answer, data[end + 4 :])
        return True

    def _take_body(self, hot: HotAnswer, data: bytes) -> None:
        if self._missing < 0:  # being answered
            self._early += data
            return
        self._pieces.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return
        body = b"".join(self._pieces)
        self._pieces.clear()
        if self._missing < 0:
            body, self._early = body[: self._missing], body[self._missing :]
        self._missing = -1
        task = self._loop.create_task(self._answer(hot, body))
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    async def _answer(self, hot: HotAnswer, body: bytes) -> None:
        """Answer one request. What goes wrong beyond a refusal ends the connection, and is logged."""
        try:
            status, answer = await hot(body)
            self._transport.write(self._head(status, len(answer)) + answer)
            self._hot = None
        finally:
            if self._hot is not None or self._closes:
                self._transport.close()
        self._state.total_requests += 1
        if self._transport.is_closing():
            return
        self._idle = self._loop.call_later(self._idle_s, self._transport.close)
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def _head(self, status: int, length: int) -> bytes:
        told = [b"%b: %b\r\n" % header for header in self._state.default_headers]
        told.append(b"content-type: application/json\r\ncontent-length: %d\r\n" % length)
        told.append(b"connection: close\r\n\r\n" if self._closes else b"\r\n")
        return _STATUS_LINES[status] + b"".join(told)

    def _stop_idling(self) -> None:
        """Somebody who has something to say is not sent away."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._rest is not None:
            self._rest._unset_keepalive_if_required()  # noqa: SLF001 — its own base class's


def _length_of(head: bytes) -> int | None:
    """Return the length of the body; None: it is not told plainly."""
    _, found, after = head.partition(_LENGTH)
    if not found or _LENGTH in after:
        return None
    for surprise in _SURPRISES:
        if surprise in head:
            return None
    digits = after.partition(b"\r\n")[0].strip()
    return int(digits) if digits.isdigit() else None


def quick_protocol(answers: Mapping[str, HotAnswer], *, longest: int) -> type[asyncio.Protocol]:
    """Return what uvicorn is to make of every connection; `answers` by path."""
    lines = {f"POST {path} HTTP/1.1".encode(): answer for path, answer in answers.items()}
    made = partial(QuickProtocol, answers=lines, longest=longest)
    return cast("type[asyncio.Protocol]", made)
