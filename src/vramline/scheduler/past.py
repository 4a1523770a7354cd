"""The JSON API's answers about the past: decisions, the history of a card, and the chronicle itself."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from vramline.errors import RequestError
from vramline.explain.chronicle import Chronicle, Span
from vramline.explain.history import DecisionRecord
from vramline.scheduler.journal import Journal
from vramline.scheduler.replies import reply

__all__ = ["Past"]

_MOST_DECISIONS = 1_000
_MOST_POINTS = 5_000
_HOUR_S = 3_600.0
_LONGEST_S = 366 * 86_400.0


class Past:
    """One method an address. Without a chronicle only the journal's last decisions are known."""

    def __init__(self, journal: Journal, now: Callable[[], float], chronicle: Chronicle | None) -> None:
        self._journal = journal
        self._now = now
        self._chronicle = chronicle

    async def decisions(self, request: Request) -> Response:
        """The newest decisions; with `pod` those about one pod, from any time; with `before` older ones."""
        query = request.query_params
        limit = _read_number(query.get("limit", "100"), "limit", 1, _MOST_DECISIONS)
        pod, before = query.get("pod", ""), query.get("before")
        if pod:
            found = await self._of_pod(pod, limit)
        elif before is not None and self._chronicle is not None:
            found = await self._chronicle.decisions(before=_read_time(before, "before"), most=limit)
        else:
            found = self._journal.history.newest(limit)
        return reply({"at": self._now(), "decisions": found})

    async def card(self, request: Request) -> Response:
        """The samples of one card, and what befell it."""
        gpu, query = request.path_params["gpu"], request.query_params
        until = _read_time(query["until"], "until") if "until" in query else self._now()
        since = _read_time(query["since"], "since") if "since" in query else until - _HOUR_S
        points = _read_number(query.get("points", "500"), "points", 2, _MOST_POINTS)
        if not 0 <= until - since <= _LONGEST_S:
            raise RequestError(
                subject="query",
                field="since",
                value=query.get("since", ""),
                problem="is not before until, or more than a year before it",
            )
        if self._chronicle is None:
            return reply({"at": self._now(), "gpu": gpu, "samples": [], "events": []})
        samples = await self._chronicle.samples(gpu, Span(since=since, until=until, most=points))
        events = await self._chronicle.events(gpu)
        return reply({"at": self._now(), "gpu": gpu, "samples": samples, "events": events})

    async def state(self, _request: Request) -> Response:
        """How the chronicle itself is."""
        state = None if self._chronicle is None else await self._chronicle.state()
        return reply({"at": self._now(), "history": state})

    async def _of_pod(self, pod: str, limit: int) -> list[DecisionRecord]:
        held = [
            record
            for record in self._journal.history.newest(_MOST_DECISIONS)
            if pod in {record.pod, record.pod.partition("/")[2]}
        ]
        known = {record.id for record in held}
        older = [] if self._chronicle is None else await self._chronicle.decisions_of(pod, most=limit)
        found = [*held, *(record for record in older if record.id not in known)]
        return sorted(found, key=lambda record: -record.at)[:limit]


def _read_number(text: str, field: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 6 and least <= int(text) <= most):
        raise RequestError(
            subject="query",
            field=field,
            value=text,
            problem="is not a number that will do",
            accepted=f"{least} to {most}",
        )
    return int(text)


def _read_time(text: str, field: str) -> float:
    whole, _, part = text.partition(".")
    if not (text.isascii() and whole.isdecimal() and (part or "0").isdecimal() and len(text) <= 20):
        raise RequestError(
            subject="query",
            field=field,
            value=text,
            problem="is not a time",
            accepted="seconds since the epoch, such as 1767225600",
        )
    return float(text)
