"""`admission.k8s.io/v1`: what the API server asks a webhook about an object, and how it is answered."""

import base64
from typing import Any

import msgspec

from vramline.errors import RequestError
from vramline.wire.admission import Admitted, Refused
from vramline.wire.decoding import convert_document

__all__ = ["API_VERSION", "AdmissionRequest", "read_review", "write_answer"]

API_VERSION = "admission.k8s.io/v1"
_SUBJECT = "AdmissionReview"
_LONGEST_WARNING = 120
"""Characters of a warning that every client shows."""
_UNPROCESSABLE = 422
"""The status with which the API server itself refuses an object that is not valid."""


class _Kind(msgspec.Struct, frozen=True, kw_only=True):
    group: str = ""
    kind: str = ""


class AdmissionRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One object that is about to be stored. `uid` is the question's own and goes into the answer."""

    uid: str
    kind: _Kind
    operation: str
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None


class _Review(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: AdmissionRequest | None = None


class _Status(msgspec.Struct, frozen=True, kw_only=True):
    code: int
    reason: str
    message: str


class _Response(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    uid: str
    allowed: bool
    status: _Status | None = None
    patch_type: str | None = None
    patch: str | None = None
    warnings: list[str] | None = None


class _Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    response: _Response
    api_version: str = API_VERSION
    kind: str = _SUBJECT


def read_review(body: bytes) -> AdmissionRequest:
    """Read a review of a pod; raises `RequestError` for anything else."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise RequestError(subject="body", problem=f"is not JSON ({error})") from None
    review = convert_document(document, _Review, subject=_SUBJECT)
    if (review.api_version, review.kind) != (API_VERSION, _SUBJECT):
        raise RequestError(
            subject="body",
            field="apiVersion and kind",
            value=f"{review.api_version} {review.kind}",
            problem="are not those of a review that is known here",
            accepted=f"{API_VERSION} {_SUBJECT}",
        )
    if review.request is None or not review.request.uid:
        raise RequestError(subject=_SUBJECT, field="request", problem="is missing or has no uid")
    kind = review.request.kind
    if (kind.group, kind.kind) != ("", "Pod"):
        raise RequestError(
            subject=_SUBJECT,
            field="request.kind",
            value=f"{kind.group}/{kind.kind}",
            problem="is not judged here",
            accepted="Pod",
        )
    return review.request


def write_answer(request: AdmissionRequest, outcome: Admitted | Refused) -> bytes:
    """Write the answer to a review."""
    if isinstance(outcome, Refused):
        status = _Status(code=_UNPROCESSABLE, reason="Invalid", message=outcome.message)
        return msgspec.json.encode(_Answer(response=_Response(uid=request.uid, allowed=False, status=status)))
    patch = base64.b64encode(msgspec.json.encode(outcome.patch)).decode() if outcome.patch else None
    response = _Response(
        uid=request.uid,
        allowed=True,
        patch_type="JSONPatch" if patch else None,
        patch=patch,
        warnings=[_shorten(warning) for warning in outcome.warnings] or None,
    )
    return msgspec.json.encode(_Answer(response=response))


def _shorten(warning: str) -> str:
    return warning if len(warning) <= _LONGEST_WARNING else f"{warning[: _LONGEST_WARNING - 1]}…"
