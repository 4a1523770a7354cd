"""The scheduler's HTTP faces: extender verbs, JSON API, snapshot, health.

Whatever is sent is answered with JSON; what is wrong with a request comes back as 4xx with
`{"error": "…"}`. Handlers call the cluster from the one task that owns it: nothing awaits between deciding
and recording.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from vramline.errors import RequestError
from vramline.explain.history import History
from vramline.model.cluster import Cluster
from vramline.scheduler.journal import Journal
from vramline.scheduler.snapshot import take_snapshot
from vramline.scheduler.verbs import bind_pod, filter_nodes, preempt_pods, prioritize_nodes
from vramline.scheduler.views import list_gpus, list_nodes, list_pods, tell_pod
from vramline.scheduler.whatif import answer_what_if
from vramline.wire.extender_v1 import read_binding_args, read_extender_args, read_preemption_args

__all__ = ["build_app"]

MAX_BODY = 128 * 2**20
"""Bytes of a request that are read; 5,000 full node objects are less."""

_MOST_DECISIONS = 1_000
_ENCODER = msgspec.json.Encoder()
_Endpoint = Callable[[Request], Awaitable[Response]]


def build_app(cluster: Cluster, history: History) -> Starlette:
    """Return the ASGI application over one cluster. `history` is read, and grows with extender calls."""
    faces = _Faces(cluster, Journal(history))
    posts: dict[str, _Endpoint] = {
        "/filter": faces.filter,
        "/prioritize": faces.prioritize,
        "/bind": faces.bind,
        "/preempt": faces.preempt,
        "/api/v1/whatif": faces.what_if,
    }
    gets: dict[str, _Endpoint] = {
        "/api/v1/gpus": faces.gpus,
        "/api/v1/nodes": faces.nodes,
        "/api/v1/pods": faces.pods,
        "/api/v1/pods/{namespace}/{name}": faces.pod,
        "/api/v1/decisions": faces.decisions,
        "/snapshot": faces.snapshot,
        "/healthz": faces.health,
        "/readyz": faces.readiness,
    }
    return Starlette(
        routes=[
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in posts.items()),
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in gets.items()),
        ],
        exception_handlers={
            RequestError: _refuse_request,
            HTTPException: _refuse_http,
            ClientDisconnect: _answer_nobody,
        },
    )


class _Faces:
    """One method an address."""

    def __init__(self, cluster: Cluster, journal: Journal) -> None:
        self._cluster = cluster
        self._journal = journal

    async def filter(self, request: Request) -> Response:
        args = read_extender_args(await _read_body(request))
        return _json(filter_nodes(self._cluster, self._journal, args))

    async def prioritize(self, request: Request) -> Response:
        return _json(prioritize_nodes(self._cluster, read_extender_args(await _read_body(request))))

    async def bind(self, request: Request) -> Response:
        args = read_binding_args(await _read_body(request))
        return _json(await bind_pod(self._cluster, self._journal, args))

    async def preempt(self, request: Request) -> Response:
        return _json(preempt_pods(self._cluster, read_preemption_args(await _read_body(request))))

    async def what_if(self, request: Request) -> Response:
        return _json(answer_what_if(self._cluster, _read_object(await _read_body(request))))

    async def gpus(self, _request: Request) -> Response:
        return _json({"at": self._cluster.now(), "gpus": list_gpus(self._cluster)})

    async def nodes(self, _request: Request) -> Response:
        return _json({"at": self._cluster.now(), "nodes": list_nodes(self._cluster)})

    async def pods(self, _request: Request) -> Response:
        return _json({"at": self._cluster.now(), "pods": list_pods(self._cluster, self._journal)})

    async def pod(self, request: Request) -> Response:
        key = f"{request.path_params['namespace']}/{request.path_params['name']}"
        story = tell_pod(self._cluster, self._journal, key)
        if story is None:
            raise HTTPException(404, f"no pod {key} in the cluster, nor among the last decisions")
        return _json(story)

    async def decisions(self, request: Request) -> Response:
        limit = _read_limit(request.query_params.get("limit", "100"))
        return _json({"at": self._cluster.now(), "decisions": self._journal.history.all()[:limit]})

    async def snapshot(self, _request: Request) -> Response:
        return _json(take_snapshot(self._cluster))

    async def health(self, _request: Request) -> Response:
        return _json({"status": "ok"})

    async def readiness(self, _request: Request) -> Response:
        nodes = sum(1 for _ in self._cluster.fleet.nodes)
        if not nodes:
            raise HTTPException(503, "no node is known yet")
        return _json({"status": "ready", "nodes": nodes, "gpus": len(self._cluster.fleet.columns.row_of)})


async def _read_body(request: Request) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY:
            raise HTTPException(413, f"the body is larger than {MAX_BODY // 2**20} MiB")
        chunks.append(chunk)
    return b"".join(chunks)


def _read_object(body: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise RequestError(subject="body", problem=f"is not JSON ({error})") from None
    if not isinstance(document, dict):
        raise RequestError(subject="body", problem="must be a JSON object")
    return document


def _read_limit(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 6 and 1 <= int(text) <= _MOST_DECISIONS):
        raise RequestError(
            subject="query",
            field="limit",
            value=text,
            problem="is not a number of decisions",
            accepted=f"1 to {_MOST_DECISIONS}",
        )
    return int(text)


def _json(content: object, status: int = 200) -> Response:
    return Response(_ENCODER.encode(content), status_code=status, media_type="application/json")


async def _refuse_request(_request: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 400)


async def _refuse_http(_request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        return _json({"error": str(error)}, 400)
    response = _json({"error": error.detail}, error.status_code)
    response.headers.update(error.headers or {})
    return response


async def _answer_nobody(_request: Request, _error: Exception) -> Response:
    return _json({"error": "the caller has left"}, 400)
