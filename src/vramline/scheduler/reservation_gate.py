"""Who may reserve memory from outside the machine: who may create pods in the owner's namespace.

A token is shown as `Authorization: Bearer …` and nowhere else: what a browser sends by itself counts for
nothing. The API server says whose it is and what they may do.
"""

import asyncio
from typing import Protocol

from starlette.exceptions import HTTPException
from starlette.requests import Request

from vramline.errors import TransientError
from vramline.wire.token_review_v1 import Person

__all__ = ["ReservationGate", "Reviewer"]

_LONGEST_TOKEN = 16 * 1024
_AT_ONCE = 8
"""Questions to the API server at one time: who knocks without end keeps only others of his kind waiting."""


class Reviewer(Protocol):
    """Knows people. Every question raises `TransientError` while nobody can tell."""

    async def who(self, token: str) -> Person | None:
        """Return whose token it is; None: nobody's."""
        ...

    async def may_create_pods(self, person: Person, namespace: str) -> bool:
        """Whether somebody may create pods in a namespace."""
        ...


class ReservationGate:
    """Lets in whom the API server knows, and has it say in whose name they may reserve."""

    def __init__(self, reviewer: Reviewer) -> None:
        self._reviewer = reviewer
        self._asking = asyncio.Semaphore(_AT_ONCE)

    async def know(self, request: Request) -> Person:
        """Return who calls; raises 401 where nobody knows."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or not token.isascii() or not 0 < len(token) <= _LONGEST_TOKEN:
            raise _unknown("a token is needed: Authorization: Bearer …")
        try:
            async with self._asking:
                person = await self._reviewer.who(token)
        except TransientError:
            raise HTTPException(503, "the API server cannot be asked now; try again") from None
        if person is None:
            raise _unknown("the API server does not know the token, or it has expired")
        return person

    async def check(self, person: Person, namespace: str) -> None:
        """Raise 403 where somebody may not have pods, and so no memory for them, in a namespace."""
        try:
            async with self._asking:
                allowed = await self._reviewer.may_create_pods(person, namespace)
        except TransientError:
            raise HTTPException(503, "the API server cannot be asked now; try again") from None
        if not allowed:
            raise HTTPException(403, f"{person.user} may not create pods in namespace {namespace}")


def _unknown(why: str) -> HTTPException:
    return HTTPException(401, why, headers={"WWW-Authenticate": "Bearer"})
