"""The scheduler's HTTP faces: extender verbs, webhook, JSON API, snapshot, health.

Whatever is sent is answered with JSON; what is wrong with a request comes back as 4xx with
`{"error": "…"}`. Handlers call the cluster from the one task that owns it: nothing awaits between deciding
and recording.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from vramline.errors import RequestError
from vramline.explain.chronicle import Chronicle
from vramline.explain.history import History
from vramline.model.cluster import Cluster
from vramline.scheduler.autotuner_status import tell_autotuner
from vramline.scheduler.checks import Checks
from vramline.scheduler.figures import count_figures
from vramline.scheduler.journal import Journal
from vramline.scheduler.late_routes import list_routes
from vramline.scheduler.long_lists import LongLists
from vramline.scheduler.openapi import describe_routes
from vramline.scheduler.past import Past
from vramline.scheduler.preempter import Preempter, hear_filter
from vramline.scheduler.preemption import preempt_pods
from vramline.scheduler.replies import ERROR_REPLIES, encode, read_body, refusal_of, reply
from vramline.scheduler.reservation_calls import ReservationCalls
from vramline.scheduler.snapshot import list_cases, take_snapshot, write_journal
from vramline.scheduler.verbs import bind_pod, filter_nodes, prioritize_nodes
from vramline.scheduler.views import list_gpus, list_nodes, list_pods, tell_pod
from vramline.scheduler.webhook import MAX_REVIEW, answer_review
from vramline.scheduler.whatif import answer_what_if
from vramline.scheduler.window import SchedulerWindow
from vramline.telemetry.metrics import CONTENT_TYPE, Sample
from vramline.telemetry.tallies import Duration, Tallies
from vramline.wire.admission import AdmissionOptions
from vramline.wire.extender_v1 import NameLists, read_binding_args, read_extender_args, read_preemption_args

__all__ = ["MAX_BODY", "SchedulerApp", "build_app"]

MAX_BODY = 128 * 2**20
"""Bytes of a request that are read; 5,000 full node objects are less."""

T = TypeVar("T")
Answer = TypeVar("Answer")

_Endpoint = Callable[[Request], Awaitable[Response]]
_HotEndpoint = Callable[[bytes], Awaitable[object]]


def build_app(  # noqa: PLR0913 — one parameter a part
    cluster: Cluster,
    history: History,
    *,
    admission: AdmissionOptions | None = None,
    is_ready: Callable[[], bool] = lambda: True,
    preempter: Preempter | None = None,
    checks: Checks | None = None,
    chronicle: Chronicle | None = None,
    pages: Callable[[SchedulerWindow], Iterable[BaseRoute]] = lambda _window: (),
    more_figures: Callable[[], Iterable[Sample]] = lambda: (),
) -> "SchedulerApp":
    """Return the ASGI application over one cluster. `history` is read, and grows with extender calls.

    `chronicle` answers about what the history has forgotten; None: nobody does. `more_figures` are further
    samples for a scrape. `preempter` hears which pods found no room; None: nobody is sent away for them.
    `pages` are what people look at, served beside everything else.

    Until `is_ready` the extender's verbs answer 503: kube-scheduler tries again, and nothing is decided on
    half of the truth.
    """
    journal = Journal(history, checks)
    faces = _Faces(cluster, journal, admission or AdmissionOptions(), is_ready)
    faces.preempter = preempter
    faces.chronicle, faces.more_figures = chronicle, more_figures
    timed = partial(_timed, journal.checks.tallies)
    past = Past(journal, cluster.now, chronicle)
    calls = ReservationCalls(cluster)
    window = SchedulerWindow(cluster, journal, chronicle)
    hot: dict[str, _HotEndpoint] = {
        "/filter": faces.filter,
        "/prioritize": faces.prioritize,
        "/bind": faces.bind,
    }
    posts: dict[str, _Endpoint] = {
        "/preempt": faces.preempt,
        "/webhook": faces.review,
        "/api/v1/whatif": faces.what_if,
        "/api/v1/reservations": calls.make,
    }
    gets = _list_gets(faces, past, calls)
    app = SchedulerApp(
        routes=[
            *(
                Route(path, _by_request(timed(path, answer)), methods=["POST"])
                for path, answer in hot.items()
            ),
            *(Route(path, timed(path, endpoint), methods=["POST"]) for path, endpoint in posts.items()),
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in gets.items()),
            Route("/api/v1/reservations/{token}", calls.end, methods=["DELETE"]),
            *pages(window),
        ],
        exception_handlers=ERROR_REPLIES,
    )
    app.hot = {path: partial(_answer, timed(path, answer)) for path, answer in hot.items()}
    app.reservation_calls = calls
    app.window = window

    async def describe(_request: Request) -> Response:
        description = describe_routes(list_routes(app.routes[:-1]))  # all but this one
        return Response(encode(description), media_type="application/json")

    app.routes.append(Route("/openapi.json", describe, methods=["GET"]))
    app.write_figures = faces.write_figures
    return app


def _list_gets(faces: "_Faces", past: Past, calls: ReservationCalls) -> dict[str, _Endpoint]:
    return {
        "/api/v1/gpus": faces.gpus,
        "/api/v1/nodes": faces.nodes,
        "/api/v1/pods": faces.pods,
        "/api/v1/pods/{namespace}/{name}": faces.pod,
        "/api/dashboard/cluster-gpu-status": faces.autotuner_status,
        "/api/v1/decisions": past.decisions,
        "/api/v1/gpus/{gpu:path}/history": past.card,
        "/api/v1/history": past.state,
        "/api/v1/reservations": calls.list_all,
        "/snapshot": faces.snapshot,
        "/metrics": faces.metrics,
        "/healthz": faces.health,
        "/readyz": faces.readiness,
    }


class SchedulerApp(Starlette):
    """The application; `hot` is the short way, past request and response objects."""

    hot: Mapping[str, Callable[[bytes], Awaitable[tuple[int, bytes]]]] = MappingProxyType({})
    """By path, what kube-scheduler asks about every pod: from a POST's body to status and JSON."""
    reservation_calls: ReservationCalls
    """Answers 501 until it is given who makes reservations."""
    window: SchedulerWindow
    """What pages see of this scheduler."""
    write_figures: Callable[[], Iterator[bytes]]
    """What /metrics says, piece by piece."""


def _timed(
    tallies: Tallies, path: str, answer: Callable[[T], Awaitable[Answer]]
) -> Callable[[T], Awaitable[Answer]]:
    """Return the same, with every call timed under the last word of its address."""
    verb = path.rpartition("/")[2]

    async def timed(asked: T) -> Answer:
        began = time.perf_counter()
        try:
            return await answer(asked)
        finally:
            tallies.took(Duration.VERB, time.perf_counter() - began, verb)

    return timed


async def _answer(answer: _HotEndpoint, body: bytes) -> tuple[int, bytes]:
    try:
        return 200, encode(await answer(body))
    except tuple(ERROR_REPLIES) as error:
        return refusal_of(error)


def _by_request(answer: _HotEndpoint) -> _Endpoint:
    async def endpoint(request: Request) -> Response:
        return reply(await answer(await read_body(request, MAX_BODY)))

    return endpoint


class _Faces:
    """One method an address."""

    def __init__(
        self, cluster: Cluster, journal: Journal, admission: AdmissionOptions, is_ready: Callable[[], bool]
    ) -> None:
        self._is_ready = is_ready
        self._cluster = cluster
        self._journal = journal
        self._admission = admission
        self._lists = NameLists()
        self._long_lists = LongLists(cluster, journal)
        self.preempter: Preempter | None = None
        self.chronicle: Chronicle | None = None
        self.more_figures: Callable[[], Iterable[Sample]] = lambda: ()

    async def filter(self, body: bytes) -> object:
        self._check_ready()
        quick = await self._long_lists.filter(body, self.preempter)
        if quick is not None:
            return quick
        args = read_extender_args(body, self._lists)
        result = await filter_nodes(self._cluster, self._journal, args)
        if result.node_names is not None and len(result.node_names) < len(args.names):
            self._lists.expect(tuple(result.node_names))
        if self.preempter is not None:
            hear_filter(self.preempter, args, result)
        return result

    async def prioritize(self, body: bytes) -> object:
        quick = self._long_lists.prioritize(body)
        if quick is not None:
            return quick
        return prioritize_nodes(self._cluster, self._journal, read_extender_args(body, self._lists))

    async def bind(self, body: bytes) -> object:
        self._check_ready()
        return await bind_pod(self._cluster, self._journal, read_binding_args(body))

    async def preempt(self, request: Request) -> Response:
        args = read_preemption_args(await read_body(request, MAX_BODY))
        return reply(preempt_pods(self._cluster, args, self.preempter))

    async def review(self, request: Request) -> Response:
        body = await read_body(request, MAX_REVIEW)
        return Response(answer_review(body, self._admission), media_type="application/json")

    async def what_if(self, request: Request) -> Response:
        return reply(answer_what_if(self._cluster, _read_object(await read_body(request, MAX_BODY))))

    async def gpus(self, _request: Request) -> Response:
        return reply({"at": self._cluster.now(), "gpus": list_gpus(self._cluster)})

    async def nodes(self, _request: Request) -> Response:
        return reply({"at": self._cluster.now(), "nodes": list_nodes(self._cluster)})

    async def autotuner_status(self, _request: Request) -> Response:
        return reply(tell_autotuner(self._cluster))

    async def pods(self, _request: Request) -> Response:
        return reply({"at": self._cluster.now(), "pods": list_pods(self._cluster, self._journal)})

    async def pod(self, request: Request) -> Response:
        key = f"{request.path_params['namespace']}/{request.path_params['name']}"
        older = [] if self.chronicle is None else await self.chronicle.decisions_of(key)
        story = tell_pod(self._cluster, self._journal, key, older)
        if story is None:
            raise HTTPException(404, f"no pod {key} in the cluster, nor in the history")
        return reply(story)

    async def snapshot(self, _request: Request) -> Response:
        snapshot, kept = take_snapshot(self._cluster), list_cases(self._journal.history)
        return reply({**snapshot, "journal": await asyncio.to_thread(write_journal, kept)})

    async def metrics(self, _request: Request) -> Response:
        return StreamingResponse(self._figures_in_turn(), media_type=CONTENT_TYPE)

    async def _figures_in_turn(self) -> AsyncIterator[bytes]:
        """Whoever schedules pods has a turn between any two pieces."""
        for piece in self.write_figures():
            yield piece
            await asyncio.sleep(0)

    def write_figures(self) -> Iterator[bytes]:
        from vramline.telemetry.exposition import write_metrics  # noqa: PLC0415 — nobody asks before it decides

        evictions = None if self.preempter is None else self.preempter.evictions
        own = count_figures(self._cluster, self._journal.history, evictions=evictions)
        return write_metrics(chain(own, self.more_figures()), self._journal.checks.tallies)

    async def health(self, _request: Request) -> Response:
        return reply({"status": "ok"})

    def _check_ready(self) -> None:
        if not self._is_ready():
            raise HTTPException(503, "not everything has been read from the API server yet")

    async def readiness(self, _request: Request) -> Response:
        self._check_ready()
        nodes = sum(1 for _ in self._cluster.fleet.nodes)
        if not nodes:
            raise HTTPException(503, "no node is known yet")
        return reply({"status": "ready", "nodes": nodes, "gpus": len(self._cluster.fleet.columns.row_of)})


def _read_object(body: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise RequestError(subject="body", problem=f"is not JSON ({error})") from None
    if not isinstance(document, dict):
        raise RequestError(subject="body", problem="must be a JSON object")
    return document
