"""One field of a form that somebody sent."""

from urllib.parse import parse_qs

from starlette.requests import Request

from vramline.errors import RequestError

__all__ = ["read_field"]

_MOST_FIELDS = 8


async def read_field(request: Request, name: str, *, most: int) -> str:
    """Return the field, or nothing where there is none; raise `RequestError` for more than `most` bytes."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > 3 * most + 1024:  # a form writes most characters of a manifest as three
            raise RequestError(subject=name, problem=f"is longer than {most // 1024} KiB")
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise RequestError(
            subject="form", problem="has too many fields", accepted=f"up to {_MOST_FIELDS}"
        ) from None
    return fields.get(name, [""])[0]
