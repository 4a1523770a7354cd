"""How requests are read and errors are answered, the same on every address."""

from collections.abc import Awaitable, Callable, Mapping

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ExceptionHandler

from vramline.errors import RequestError

__all__ = ["ERROR_REPLIES", "read_body", "reply", "reply_to_error"]

_ENCODER = msgspec.json.Encoder()


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
    return Response(_ENCODER.encode(content), status_code=status, media_type="application/json")


async def _refuse_request(_request: Request, error: Exception) -> Response:
    return reply({"error": str(error)}, 400)


async def _refuse_http(_request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        return reply({"error": str(error)}, 400)
    response = reply({"error": error.detail}, error.status_code)
    response.headers.update(error.headers or {})
    return response


async def _answer_nobody(_request: Request, _error: Exception) -> Response:
    return reply({"error": "the caller has left"}, 400)


async def reply_to_error(request: Request, error: Exception) -> Response:
    """Return what an error of one of these kinds becomes, for an endpoint that no router called."""
    return await next(answer for kind, answer in _ANSWERS.items() if isinstance(error, kind))(request, error)


_ANSWERS: Mapping[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    RequestError: _refuse_request,
    HTTPException: _refuse_http,
    ClientDisconnect: _answer_nobody,
}

ERROR_REPLIES: Mapping[type[Exception], ExceptionHandler] = _ANSWERS
"""What each kind of error becomes."""
