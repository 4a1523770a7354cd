"""In a cluster people show a token, and the API server says who they are and whose pods they may list.

A program sends `Authorization: Bearer …`, as does a proxy that signs people in; without one a page asks for a
token and keeps it in a cookie that no script can read and no other site can send.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from vramline.dashboard.forms import read_field
from vramline.dashboard.headers import dress
from vramline.dashboard.markup import Templates
from vramline.dashboard.viewers import Viewer
from vramline.errors import RequestError, TransientError
from vramline.wire.token_review_v1 import Person

__all__ = ["PAGE", "Reviewer", "TokenGate"]

PAGE = "/vramline/dashboard"
"""What RBAC has to let somebody get before anything is shown."""

_COOKIE = "__Host-vramline"
_LONGEST_TOKEN = 16 * 1024
_MOST_TOKENS = 4_096
_KEPT_S = 60.0
_REFUSAL_KEPT_S = 10.0
_AT_ONCE = 16
"""Questions to the API server at one time."""


class Reviewer(Protocol):
    """Knows people. Every question raises `TransientError` while nobody can tell."""

    async def who(self, token: str) -> Person | None:
        """Return whose token it is; None: nobody's."""
        ...

    async def may_look(self, person: Person, path: str) -> bool:
        """Whether somebody may get this path of no resource."""
        ...

    async def may_list_pods(self, person: Person, namespace: str) -> bool:
        """Whether somebody may list the pods of a namespace; empty: of all."""
        ...


class TokenGate:
    """Lets in whom the API server knows and RBAC lets look; satisfies `viewers.Gate`."""

    def __init__(
        self, reviewer: Reviewer, namespaces: Callable[[], Iterable[str]], clock: Callable[[], float]
    ) -> None:
        """`namespaces` are those that have GPU pods now; `clock` only has to run."""
        self._reviewer = reviewer
        self._namespaces = namespaces
        self._clock = clock
        self._templates = Templates()
        self._asking = asyncio.Semaphore(_AT_ONCE)
        self._known: OrderedDict[bytes, tuple[float, Viewer | str]] = OrderedDict()

    def routes(self) -> Iterable[BaseRoute]:
        """Where people sign in and out."""
        return [
            Route("/sign-in", self._sign_in, methods=["POST"]),
            Route("/sign-out", self._sign_out, methods=["POST"]),
        ]

    async def admit(self, request: Request) -> Viewer | Response:
        """Return who it is, or the page that asks for a token."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip() if kind.lower() == "bearer" else request.cookies.get(_COOKIE, "")
        if not token:
            return self._ask("", 401)
        return await self._judge(token)

    async def _judge(self, token: str) -> Viewer | Response:
        try:
            verdict = await self._verdict_on(token)
        except TransientError:
            return self._ask("The API server cannot be asked now; try again.", 503)
        return self._ask(verdict, 403) if isinstance(verdict, str) else verdict

    async def _verdict_on(self, token: str) -> Viewer | str:
        """Return the viewer, or why somebody is turned away; the same for a minute."""
        if len(token) > _LONGEST_TOKEN or not token.isascii():
            return "That is not a token."
        key = hashlib.sha256(token.encode()).digest()
        until, verdict = self._known.get(key, (0.0, ""))
        if until > self._clock():
            return verdict
        verdict = await self._review(token)
        self._known[key] = self._clock() + (_REFUSAL_KEPT_S if isinstance(verdict, str) else _KEPT_S), verdict
        self._known.move_to_end(key)
        if len(self._known) > _MOST_TOKENS:
            self._known.popitem(last=False)
        return verdict

    async def _review(self, token: str) -> Viewer | str:
        async with self._asking:
            person = await self._reviewer.who(token)
            if person is None:
                return "The API server does not know that token, or it has expired."
            if not await self._reviewer.may_look(person, PAGE):
                return f"{person.user} may not look at this: RBAC does not let them get {PAGE}."
            if await self._reviewer.may_list_pods(person, ""):
                return Viewer(name=person.user, is_known=True)
        own = await self._own_namespaces(person)
        return Viewer(name=person.user, namespaces=own, is_known=True)

    async def _own_namespaces(self, person: Person) -> frozenset[str]:
        """Return the namespaces whose pods somebody may list, of those that have GPU pods."""

        async def check(namespace: str) -> str:
            async with self._asking:
                return namespace if await self._reviewer.may_list_pods(person, namespace) else ""

        found = await asyncio.gather(*map(check, sorted(set(self._namespaces()))))
        return frozenset(filter(None, found))

    async def _sign_in(self, request: Request) -> Response:
        try:
            token = "".join((await read_field(request, "token", most=_LONGEST_TOKEN)).split())
        except RequestError as error:
            return dress(self._ask(str(error), 400))
        verdict = await self._judge(token) if token else self._ask("A token is needed.", 400)
        if isinstance(verdict, Response):
            return dress(verdict)
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(_COOKIE, token, path="/", secure=True, httponly=True, samesite="strict")
        return dress(answer)

    async def _sign_out(self, _request: Request) -> Response:
        answer = RedirectResponse("/", status_code=303)
        answer.delete_cookie(_COOKIE, path="/", secure=True, httponly=True, samesite="strict")
        return dress(answer)

    def _ask(self, problem: str, status: int) -> Response:
        page = self._templates.page("sign_in.html", viewer=Viewer(), now=0.0, problem=problem)
        return HTMLResponse(page, status_code=status, headers={"WWW-Authenticate": "Bearer"})
