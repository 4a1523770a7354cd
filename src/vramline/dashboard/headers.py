"""Headers of every answer: nothing foreign is loaded, nothing is kept, nobody frames it."""

from starlette.responses import Response

__all__ = ["dress"]

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def dress(response: Response) -> Response:
    """Give an answer the headers that let nothing foreign in."""
    response.headers.update(_HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
    return response
