"""The floor under an extender: an endpoint that only decodes and encodes the bodies of another.

The same HTTP server, event loop and JSON library as the scheduler's, so that what is above it is the
scheduler's own work. It is told beforehand what to answer: the very answer that the scheduler gave.
"""

import socket

import msgspec
import uvicorn
from starlette.applications import Starlette

from vramline.scheduler.quick_http import quick_protocol
from vramline.wire.extender_v1 import ExtenderFilterResult, HostPriority

__all__ = ["serve_floor"]

_LONGEST = 128 * 2**20


class _Args(msgspec.Struct, frozen=True, rename="pascal"):
    pod: dict[str, object]
    node_names: list[str]


_READ_ARGS = msgspec.json.Decoder(_Args)
_READ_FILTER = msgspec.json.Decoder(ExtenderFilterResult)
_READ_PRIORITIES = msgspec.json.Decoder(list[HostPriority])
_ENCODER = msgspec.json.Encoder()


class _Floor:
    """Knows the next answer, and nothing else."""

    def __init__(self) -> None:
        self._next: object = None

    async def expect_filter(self, body: bytes) -> tuple[int, bytes]:
        self._next = _READ_FILTER.decode(body)
        return 200, b""

    async def expect_prioritize(self, body: bytes) -> tuple[int, bytes]:
        self._next = _READ_PRIORITIES.decode(body)
        return 200, b""

    async def answer(self, body: bytes) -> tuple[int, bytes]:
        _READ_ARGS.decode(body)
        return 200, _ENCODER.encode(self._next)


def serve_floor(listener: socket.socket) -> None:
    """Serve until ended; for a process of its own."""
    floor = _Floor()
    answers = {
        "/expect-filter": floor.expect_filter,
        "/expect-prioritize": floor.expect_prioritize,
        "/filter": floor.answer,
        "/prioritize": floor.answer,
    }
    config = uvicorn.Config(
        Starlette(),
        http=quick_protocol(answers, longest=_LONGEST),
        log_config=None,
        access_log=False,
        lifespan="off",
        loop="uvloop",
        server_header=False,
    )
    uvicorn.Server(config).run(sockets=[listener])
