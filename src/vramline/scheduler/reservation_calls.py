"""Reservations over HTTP: make, list, end.

Whoever may call this can take memory from everybody for an hour, so a call must come from this machine, as
the extender's do, and not from a web page that a browser on it happens to show: such a page can send neither
JSON nor DELETE to us without asking first, and nobody here says yes.
"""

import ipaddress

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from vramline.errors import RequestError
from vramline.model.cluster import Cluster
from vramline.scheduler.replies import read_body, reply
from vramline.scheduler.reservations import NoRoom, NotDone, Reservations, read_wish
from vramline.wire.reservations import is_token

__all__ = ["ReservationCalls"]

_MAX_BODY = 2**20


class ReservationCalls:
    """One method a call."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.desk: Reservations | None = None
        """Who makes them; None: the cluster takes none."""

    async def make(self, request: Request) -> Response:
        """Reserve: 201 with the token, 409 with the reasons, 503 where this replica may not."""
        desk = self._open_to(request)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "a reservation is asked for in JSON: Content-Type: application/json")
        made = await desk.reserve(read_wish(_read_json(await read_body(request, _MAX_BODY))))
        if isinstance(made, NotDone):
            return reply(made, 503)
        if isinstance(made, NoRoom):
            return reply({"error": made.explanation.message, "explanation": made.explanation}, 409)
        return reply(made, 201)

    async def list_all(self, _request: Request) -> Response:
        """Return every reservation, without its token."""
        known = [] if self.desk is None else self.desk.list_all()
        told = [msgspec.structs.replace(each, token=None) for each in known]
        return reply({"at": self._cluster.now(), "reservations": told})

    async def end(self, request: Request) -> Response:
        """End the reservation of the token in the address."""
        desk, token = self._open_to(request), request.path_params["token"]
        ended = await desk.end(token) if is_token(token) else False
        if isinstance(ended, NotDone):
            return reply(ended, 503)
        if not ended:
            raise HTTPException(404, "no reservation has this token, or none any more")
        return reply({"status": "ended"})

    def _open_to(self, request: Request) -> Reservations:
        host = "" if request.client is None else request.client.host
        if not _is_this_machine(host):
            raise HTTPException(403, "reservations are made and ended from the scheduler's own machine alone")
        if self.desk is None:
            raise HTTPException(501, "this cluster takes no reservations")
        return self.desk


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_json(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise RequestError(subject="body", problem=f"is not JSON ({error})") from None
