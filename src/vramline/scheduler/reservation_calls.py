"""Reservations over HTTP: make, list, end.

Whoever may call this can take memory from everybody for an hour. On the machine's own address a call must
come from this machine, as the extender's do, and not from a web page that a browser on it happens to show:
such a page can send neither JSON nor DELETE to us without asking first, and nobody here says yes; nor can it
call us by a name of its own. From outside, a token has to be shown, and its holder be somebody who may create
pods in the owner's namespace.
"""

import ipaddress
from collections.abc import Awaitable, Callable

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from vramline.errors import RequestError
from vramline.model.cluster import Cluster
from vramline.scheduler.replies import ERROR_REPLIES, read_body, refusal_of, reply
from vramline.scheduler.reservation_gate import ReservationGate
from vramline.scheduler.reservations import NoRoom, NotDone, Reservations, read_wish
from vramline.wire.reservations import is_token
from vramline.wire.token_review_v1 import Person

__all__ = ["ReservationCalls"]

_MAX_BODY = 2**20
_Endpoint = Callable[[Request], Awaitable[Response]]


class ReservationCalls:
    """One method a call."""

    def __init__(self, cluster: Cluster, gate: ReservationGate | None = None) -> None:
        """`gate` judges callers from outside; None: there are none, only this machine may call."""
        self._cluster = cluster
        self._gate = gate
        self.desk: Reservations | None = None
        """Who makes them; None: the cluster takes none."""

    def routes(self) -> list[BaseRoute]:
        """Where they are made and ended from outside; errors are answered as everywhere."""
        address = "/api/v1/reservations"
        return [
            Route(address, _answering(self.make), methods=["POST"]),
            Route(f"{address}/{{token}}", _answering(self.end), methods=["DELETE"]),
        ]

    async def make(self, request: Request) -> Response:
        """Reserve: 201 with the token, 409 with the reasons, 503 where this replica may not."""
        desk, person = self._find_desk(), await self._know(request)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "a reservation is asked for in JSON: Content-Type: application/json")
        wish = read_wish(_read_json(await read_body(request, _MAX_BODY)))
        if self._gate is not None and person is not None:
            await self._gate.check(person, wish.owner.partition("/")[0])
        made = await desk.reserve(wish)
        if isinstance(made, NotDone):
            return reply(made, 503)
        if isinstance(made, NoRoom):
            # To people from outside the names of other people's pods are not told.
            more = {} if person is not None else {"explanation": made.explanation}
            return reply({"error": made.explanation.message, **more}, 409)
        return reply(made, 201)

    async def list_all(self, _request: Request) -> Response:
        """Return every reservation, without its token."""
        known = [] if self.desk is None else self.desk.list_all()
        told = [msgspec.structs.replace(each, token=None) for each in known]
        return reply({"at": self._cluster.now(), "reservations": told})

    async def end(self, request: Request) -> Response:
        """End the reservation of the token in the address."""
        desk, token = self._find_desk(), request.path_params["token"]
        await self._know(request)
        ended = await desk.end(token) if is_token(token) else False
        if isinstance(ended, NotDone):
            return reply(ended, 503)
        if not ended:
            raise HTTPException(404, "no reservation has this token, or none any more")
        return reply({"status": "ended"})

    async def _know(self, request: Request) -> Person | None:
        """Return who calls from outside; None: this machine does."""
        if self._gate is not None:
            return await self._gate.know(request)
        peer = "" if request.client is None else request.client.host
        if not _is_this_machine(peer) or not _is_this_machine(request.url.hostname or ""):
            raise HTTPException(403, "only the scheduler's own machine may reserve at this address")
        return None

    def _find_desk(self) -> Reservations:
        if self.desk is None:
            raise HTTPException(501, "this cluster takes no reservations")
        return self.desk


def _answering(endpoint: _Endpoint) -> _Endpoint:
    """Return an endpoint that answers what is wrong with a request, whatever application it is in."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except tuple(ERROR_REPLIES) as error:
            status, body = refusal_of(error)
            headers = error.headers if isinstance(error, HTTPException) else None
            return Response(body, status_code=status, headers=headers, media_type="application/json")

    return answer


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_json(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise RequestError(subject="body", problem=f"is not JSON ({error})") from None
