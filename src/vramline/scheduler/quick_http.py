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

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["HotAnswer", "QuickProtocol", "quick_protocol"]

HotAnswer = Callable[[bytes], Awaitable[tuple[int, bytes]]]
"""From a request's body to status and JSON."""

_LENGTH = b"\r\ncontent-length:"
_SURPRISES = (b"\r\ntransfer-encoding:", b"\r\nexpect:", b"\r\nconnection:", b"\r\nupgrade:")
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class QuickProtocol(HttpToolsProtocol):
    """One connection. Without pipelining: what comes before an answer was sent waits for it."""

    def __init__(self, *, answers: Mapping[str, HotAnswer], longest: int, **rest: Any) -> None:  # noqa: ANN401 — uvicorn's own
        """`answers` by path; a body longer than `longest` bytes is left to uvicorn and its application."""
        super().__init__(**rest)
        self._answers = {f"POST {path} HTTP/1.1".encode(): answer for path, answer in answers.items()}
        self._longest = longest
        self._hot: HotAnswer | None = None
        """What answers the request that is arriving or being answered."""
        self._missing = 0
        self._pieces: list[bytes] = []
        self._early = b""
        self._elsewhere = False
        """Whether uvicorn has a request in its hands."""
        self._closes = False

    def data_received(self, data: bytes) -> None:
        """Take in what arrived."""
        if self._hot is not None:
            self._take_body(self._hot, data)
        elif self._elsewhere or not self._starts_hot(data):
            super().data_received(data)

    def on_message_begin(self) -> None:
        """A request starts that uvicorn parses."""
        self._elsewhere = True
        super().on_message_begin()

    def on_response_complete(self) -> None:
        """A request that uvicorn had is answered."""
        self._elsewhere = bool(self.pipeline)
        super().on_response_complete()

    def shutdown(self) -> None:
        """Close, after the answer where one is under way."""
        if self._hot is None:
            super().shutdown()
        else:
            self._closes = True

    def _starts_hot(self, data: bytes) -> bool:
        """Whether these bytes start a request that is answered here; if so, take it."""
        answer = self._answers.get(data[: data.find(b"\r\n")])
        if answer is None:
            return False
        end = data.find(b"\r\n\r\n")
        length = _length_of(data[:end].lower()) if end > 0 else None
        if length is None or length > self._longest:
            return False
        self._unset_keepalive_if_required()
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
        task = self.loop.create_task(self._answer(hot, body))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _answer(self, hot: HotAnswer, body: bytes) -> None:
        """Answer one request. What goes wrong beyond a refusal ends the connection, and is logged."""
        try:
            status, answer = await hot(body)
            self.transport.write(self._head(status, len(answer)) + answer)
            self._hot = None
        finally:
            if self._hot is not None or self._closes:
                self.transport.close()
        if self._closes:
            return
        super().on_response_complete()
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def _head(self, status: int, length: int) -> bytes:
        told = [b"%b: %b\r\n" % header for header in self.server_state.default_headers]
        told.append(b"content-type: application/json\r\ncontent-length: %d\r\n" % length)
        told.append(b"connection: close\r\n\r\n" if self._closes else b"\r\n")
        return _STATUS_LINES[status] + b"".join(told)


def _length_of(head: bytes) -> int | None:
    """Return the length of the body; None: it is not told plainly."""
    _, found, after = head.partition(_LENGTH)
    if not found or _LENGTH in after or any(surprise in head for surprise in _SURPRISES):
        return None
    digits = after.partition(b"\r\n")[0].strip()
    return int(digits) if digits.isdigit() else None


def quick_protocol(answers: Mapping[str, HotAnswer], *, longest: int) -> type[asyncio.Protocol]:
    """Return what uvicorn is to make of every connection."""
    made = partial(QuickProtocol, answers=answers, longest=longest)
    return cast("type[asyncio.Protocol]", made)
