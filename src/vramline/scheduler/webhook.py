"""The admission webhook: a review in, its answer out; and the only application that is open to the network.

The API server calls `POST /webhook?timeout=2s`. Nothing else is served there, because its callers prove
nothing about themselves: extender and API stay on loopback.
"""

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vramline.scheduler.replies import ERROR_REPLIES, read_body, reply
from vramline.wire.admission import AdmissionOptions, plan_admission
from vramline.wire.admission_v1 import read_review, write_answer

__all__ = ["answer_review", "build_webhook_app"]

MAX_REVIEW = 16 * 2**20
"""Bytes of a review that are read: two pods of the largest size that the API server takes, and a margin."""


def answer_review(body: bytes, options: AdmissionOptions) -> bytes:
    """Answer one review; raises `RequestError` for what is none."""
    request = read_review(body)
    outcome = plan_admission(
        request.object or {},
        operation=request.operation,
        options=options,
        old_pod=request.old_object,
    )
    return write_answer(request, outcome)


def build_webhook_app(options: AdmissionOptions, *, is_ready: Callable[[], bool]) -> Starlette:
    """Return the application for the TLS address: the webhook, and the two probes of kubelet."""

    async def review(request: Request) -> Response:
        body = await read_body(request, MAX_REVIEW)
        return Response(answer_review(body, options), media_type="application/json")

    async def health(_request: Request) -> Response:
        return reply({"status": "ok"})

    async def readiness(_request: Request) -> Response:
        if not is_ready():
            raise HTTPException(503, "not ready yet")
        return reply({"status": "ready"})

    return Starlette(
        routes=[
            Route("/webhook", review, methods=["POST"]),
            Route("/healthz", health, methods=["GET"]),
            Route("/readyz", readiness, methods=["GET"]),
        ],
        exception_handlers=ERROR_REPLIES,
    )
