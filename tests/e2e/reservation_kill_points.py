"""Where a scheduler is killed while it binds with reservations; docs/reservations.md lists the points."""

from e2e.kill_points import KillPoint, Work
from faultproxy.faults import Moment

__all__ = ["RESERVATION_POINTS"]

_RESERVATIONS = "/namespaces/vramline-reservations/pods"
_REQUESTS = "/bindrequests"
_MOMENTS = {Moment.BEFORE: "before it is sent", Moment.COMMITTED: "unanswered", Moment.ANSWERED: "answered"}


def _points(name: str, work: Work, method: str, path: str) -> list[KillPoint]:
    return [KillPoint(f"{name}, {word}", work, method, path, moment) for moment, word in _MOMENTS.items()]


RESERVATION_POINTS: tuple[KillPoint, ...] = (
    *_points("the claim", Work.BINDS, "POST", "/gpuledgers$"),
    *_points("the request as pending", Work.BINDS, "POST", f"{_REQUESTS}$"),
    *_points("the reservation pod", Work.BINDS, "POST", f"{_RESERVATIONS}$"),
    *_points("the binding", Work.BINDS, "POST", "/binding$"),
    *_points("the request as ended", Work.BINDS, "PUT", f"{_REQUESTS}/"),
    *_points("the end of a reservation", Work.ENDS, "DELETE", f"{_RESERVATIONS}/"),
)
