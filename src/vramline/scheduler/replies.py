"""How requests are read and errors are answered, the same on every address."""

from collections.abc import Mapping

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ExceptionHandler

from vramline.errors import RequestError

__all__ = ["ERROR_REPLIES", "encode", "read_body", "refusal_of", "reply"]

_ENCODER = msgspec.json.Encoder()
encode = _ENCODER.encode
"""Write JSON."""


async def read_body(request: Request, most: int) -> bytes:
    """Return the body, or raise 413 where it is longer than `most` bytes."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise HTTPException(413, f"the body is larger than {most // 2**20} MiB")
        chunks.append(chunk)
    return b"".join(chunks)


def reply(content: object, status: int = 200) -> Response:
    """Answer with JSON."""
    return Response(encode(content), status_code=status, media_type="application/json")


def refusal_of(error: Exception) -> tuple[int, bytes]:
    """Return status and JSON for an error of a kind that a caller can make."""
    status, problem = (
        (error.status_code, error.detail) if isinstance(error, HTTPException) else (400, str(error))
    )
    return status, encode({"error": problem})


async def _refuse(_request: Request, error: Exception) -> Response:
    status, problem = refusal_of(error)
    headers = error.headers if isinstance(error, HTTPException) else None
    return Response(problem, status_code=status, headers=headers, media_type="application/json")


async def _answer_nobody(_request: Request, _error: Exception) -> Response:
    return reply({"error": "the caller has left"}, 400)


ERROR_REPLIES: Mapping[type[Exception], ExceptionHandler] = {
    RequestError: _refuse,
    HTTPException: _refuse,
    ClientDisconnect: _answer_nobody,
}
"""What each kind of error becomes."""
