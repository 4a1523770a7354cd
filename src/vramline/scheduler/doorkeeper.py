"""Who may open a stream: the agent's service account, for the node of its token, until that expires.

The API server is asked about a token once a minute at most, and about a refused one too: whoever dials again
and again costs us, not the API server.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import msgspec

from vramline.errors import TransientError
from vramline.wire.token_review_v1 import TokenHolder, expiry_of

__all__ = ["AGENT_ACCOUNT", "Admitted", "Doorkeeper", "Reviewer", "TurnedAway"]

AGENT_ACCOUNT = "system:serviceaccount:vramline-agent:vramline-agent"

_LONGEST_TOKEN = 16 * 1024
_KEPT_S = 60.0
_REFUSAL_KEPT_S = 10.0
_LONGEST_STREAM_S = 3600.0
"""After this a stream is closed and has to show a token again, whatever the last one says of itself."""


class Reviewer(Protocol):
    """Knows whose a token is."""

    async def review(self, token: str) -> TokenHolder | None:
        """Return whose token it is; None: nobody's. Raises `TransientError` while nobody can tell."""
        ...


class Admitted(msgspec.Struct, frozen=True):
    """May speak for this node, until then."""

    node: str
    until: float


class TurnedAway(msgspec.Struct, frozen=True):
    """May not come in: an HTTP status and the reason."""

    status: int
    why: str


class Doorkeeper:
    """Judges the header with which a stream is asked for."""

    def __init__(
        self, reviewer: Reviewer, clock: Callable[[], float], *, most_tokens: int = 16_384, at_once: int = 32
    ) -> None:
        self._reviewer = reviewer
        self._clock = clock
        self._most_tokens = most_tokens
        self._asking = asyncio.Semaphore(at_once)
        self._known: OrderedDict[bytes, tuple[float, TokenHolder | None]] = OrderedDict()

    async def admit(self, authorization: str) -> Admitted | TurnedAway:
        """Say whether who shows this header may open a stream, and for which node."""
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not token or len(token) > _LONGEST_TOKEN:
            return TurnedAway(401, "a token of the agent's service account is needed")
        longest = self._clock() + _LONGEST_STREAM_S
        told = expiry_of(token)
        until = longest if told is None else min(told, longest)
        if until <= self._clock():
            return TurnedAway(401, "the token has expired")
        try:
            holder = await self._holder_of(token)
        except TransientError:
            return TurnedAway(503, "the API server cannot be asked now; try again")
        return _judge(holder, until)

    async def _holder_of(self, token: str) -> TokenHolder | None:
        key = hashlib.sha256(token.encode()).digest()
        async with self._asking:
            kept_until, holder = self._known.get(key, (0.0, None))
            if kept_until > self._clock():
                return holder
            holder = await self._reviewer.review(token)
        self._known[key] = self._clock() + (_REFUSAL_KEPT_S if holder is None else _KEPT_S), holder
        self._known.move_to_end(key)
        if len(self._known) > self._most_tokens:
            self._known.popitem(last=False)
        return holder


def _judge(holder: TokenHolder | None, until: float) -> Admitted | TurnedAway:
    if holder is None:
        return TurnedAway(401, "the API server does not know the token")
    if holder.user != AGENT_ACCOUNT:
        return TurnedAway(403, f"{holder.user} is not the agent's service account")
    if not holder.node:
        return TurnedAway(403, "the token is not bound to a pod on a node")
    return Admitted(holder.node, until)
