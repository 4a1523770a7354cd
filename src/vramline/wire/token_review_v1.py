"""`TokenReview` of authentication.k8s.io/v1: whose a token is, on which node, and until when."""

import base64
import binascii

import msgspec

__all__ = [
    "Person",
    "TokenHolder",
    "expiry_of",
    "holder_in",
    "person_in",
    "person_review",
    "token_review",
]

_NODE = "authentication.kubernetes.io/node-name"
"""What the API server says, since Kubernetes 1.30, about a token that is bound to a pod."""


class TokenHolder(msgspec.Struct, frozen=True):
    """Who a token speaks for."""

    user: str
    node: str
    """Node of the pod to which the token is bound; empty: it is bound to none."""


class Person(msgspec.Struct, frozen=True):
    """Who a token speaks for, as the API server's own authorization wants to know it."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}


class _Status(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: list[str] = []


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


class _Claims(msgspec.Struct, frozen=True):
    exp: float | None = None


def token_review(token: str, audience: str) -> dict[str, object]:
    """Return the question whose this token is."""
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": [audience]},
    }


def holder_in(answer: object, audience: str) -> TokenHolder | None:
    """Read the answer; None: the token is nobody's, was made for somebody else, or the answer is odd."""
    try:
        status = msgspec.convert(answer, _Review).status
    except msgspec.ValidationError:
        return None
    if not status.authenticated or audience not in status.audiences:
        return None
    nodes = status.user.extra.get(_NODE, [])
    return TokenHolder(status.user.username, nodes[0] if len(nodes) == 1 else "")


def person_review(token: str) -> dict[str, object]:
    """Return the question whose this token is, for one that was made for the API server itself."""
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}


def person_in(answer: object) -> Person | None:
    """Read the answer; None: the token is nobody's, or the answer is odd."""
    try:
        status = msgspec.convert(answer, _Review).status
    except msgspec.ValidationError:
        return None
    user = status.user
    return Person(user.username, user.uid, user.groups, user.extra) if status.authenticated else None


def expiry_of(token: str) -> float | None:
    """Return when a token expires, in seconds since the epoch; None: it does not say.

    Only to be asked of a token that the API server believed: nothing is verified here.

    >>> expiry_of("e30.eyJleHAiOjYwfQ.c2ln")
    60.0
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(payload, type=_Claims).exp
    except (binascii.Error, ValueError, msgspec.DecodeError):
        return None
