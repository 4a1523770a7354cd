"""A stand-in for the API server's data path: lists, watches and writes of one population, from memory.

It answers what `vramline scheduler` asks, over real HTTP, with objects as large as real ones and with
versions as preconditions. It is no API server: no admission, no rights, no storage, no etcd behind it.
What is measured against it is the scheduler, and nothing else.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from vramline.bench.population import Population, PopulationShape
from vramline.bench.population_objects import ledger_objects, node_objects, pod_objects, report_objects
from vramline.kube.objects import LEASES, LEDGERS, NODES, PODS, REPORTS
from vramline.wire.keys import INITIAL_EVENTS_END

__all__ = ["StandIn", "serve_stand_in"]

Document = dict[str, Any]

_PIECE = 1 << 18
"""Bytes of a stream that are sent at once."""
_FOLLOWED = (NODES, REPORTS, LEDGERS, PODS)


class _Kind:
    """All objects of one kind, and who watches them."""

    def __init__(self) -> None:
        self.objects: dict[str, Document] = {}
        """By `namespace/name`; an object is never changed, only replaced."""
        self.initial = b""
        """Everything as a watch starts with it, written once; a start must not wait for this side."""
        self.watchers: set[asyncio.Queue[bytes]] = set()


class StandIn:
    """One population, served."""

    def __init__(self, population: Population) -> None:
        self._version = 1
        self._kinds = {each.plural: _Kind() for each in (*_FOLLOWED, LEASES)}
        self.sent_at = 0.0
        """When the last byte of what there was had been taken off our hands, by the monotonic clock."""
        for plural, objects in (
            (NODES.plural, node_objects(population)),
            (REPORTS.plural, report_objects(population, observed_at=time.time())),
            (LEDGERS.plural, ledger_objects(population)),
            (PODS.plural, pod_objects(population)),
        ):
            self._load(self._kinds[plural], objects)

    def app(self) -> Starlette:
        """Return the application."""
        followed = [Route(each.collection(), self._collection, methods=["GET", "POST"]) for each in _FOLLOWED]
        inside = "/{namespace}/" + PODS.plural + "/{name}"
        leases = LEASES.collection("NS").replace("NS", "{namespace}")
        return Starlette(
            routes=[
                *followed,
                Route(LEDGERS.collection() + "/{name}", self._ledger, methods=["GET", "PUT"]),
                Route(f"/api/v1/namespaces{inside}", self._pod),
                Route(f"/api/v1/namespaces{inside}/binding", self._bind, methods=["POST"]),
                Route(leases, self._collection, methods=["POST"]),
                Route(leases + "/{name}", self._lease, methods=["GET", "PUT"]),
                Route("/sent", self._sent),
                Route("/{rest:path}", _not_here, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
            ]
        )

    # ── addresses ────────────────────────────────────────────────────────────────────────────────

    async def _collection(self, request: Request) -> Response:
        kind = self._kinds[request.url.path.rpartition("/")[2]]
        if request.method == "GET":
            return StreamingResponse(self._watch(kind, request), media_type="application/json")
        document = msgspec.json.decode(await request.body())
        key = _key(document)
        if key in kind.objects:
            return _refuse(409, "AlreadyExists")
        return _reply(self._store(kind, document, "ADDED"), 201)

    async def _ledger(self, request: Request) -> Response:
        return await self._read_or_replace(
            self._kinds[LEDGERS.plural], f"/{request.path_params['name']}", request
        )

    async def _lease(self, request: Request) -> Response:
        place = "{namespace}/{name}".format_map(request.path_params)
        return await self._read_or_replace(self._kinds[LEASES.plural], place, request)

    async def _pod(self, request: Request) -> Response:
        found = self._kinds[PODS.plural].objects.get("{namespace}/{name}".format_map(request.path_params))
        return _refuse(404, "NotFound") if found is None else _reply(found)

    async def _bind(self, request: Request) -> Response:
        """Put a pod on a node, with the annotations of the binding, in one write."""
        kind = self._kinds[PODS.plural]
        pod = kind.objects.get("{namespace}/{name}".format_map(request.path_params))
        binding = msgspec.json.decode(await request.body())
        if pod is None:
            return _refuse(404, "NotFound")
        wanted = binding["metadata"].get("resourceVersion")
        if pod["spec"].get("nodeName") or wanted not in {None, pod["metadata"]["resourceVersion"]}:
            return _refuse(409, "Conflict")
        annotations = pod["metadata"]["annotations"] | binding["metadata"].get("annotations", {})
        bound = {
            **pod,
            "metadata": {**pod["metadata"], "annotations": annotations},
            "spec": {**pod["spec"], "nodeName": binding["target"]["name"]},
        }
        self._store(kind, bound, "MODIFIED")
        return _reply({"kind": "Status", "apiVersion": "v1", "status": "Success"}, 201)

    async def _sent(self, _request: Request) -> Response:
        return _reply({"sentAt": self.sent_at})

    # ── inside ───────────────────────────────────────────────────────────────────────────────────

    def _load(self, kind: _Kind, objects: Iterable[Document]) -> None:
        lines = []
        for document in objects:
            self._version += 1
            document["metadata"]["resourceVersion"] = str(self._version)
            kind.objects[_key(document)] = document
            lines.append(_line("ADDED", document))
        kind.initial = b"".join(lines)

    async def _watch(self, kind: _Kind, request: Request) -> AsyncIterator[bytes]:
        """Stream what there is, where that is wanted, then what comes."""
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        if request.query_params.get("sendInitialEvents") == "true":
            for start in range(0, len(kind.initial), _PIECE):
                yield kind.initial[start : start + _PIECE]
            version = {"resourceVersion": str(self._version), "annotations": {INITIAL_EVENTS_END: "true"}}
            kind.watchers.add(queue)
            yield _line("BOOKMARK", {"metadata": version})
            self.sent_at = time.monotonic()
        else:
            kind.watchers.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            kind.watchers.discard(queue)

    async def _read_or_replace(self, kind: _Kind, key: str, request: Request) -> Response:
        known = kind.objects.get(key)
        if known is None:
            return _refuse(404, "NotFound")
        if request.method == "GET":
            return _reply(known)
        document = msgspec.json.decode(await request.body())
        if document["metadata"].get("resourceVersion") != known["metadata"]["resourceVersion"]:
            return _refuse(409, "Conflict")
        document["metadata"]["uid"] = known["metadata"]["uid"]
        return _reply(self._store(kind, document, "MODIFIED"))

    def _store(self, kind: _Kind, document: Document, what: str) -> Document:
        self._version += 1
        uid = document["metadata"].get("uid", f"uid-{self._version}")
        meta = {**document["metadata"], "uid": uid, "resourceVersion": str(self._version)}
        stored = kind.objects[_key(document)] = {**document, "metadata": meta}
        for watcher in kind.watchers:
            watcher.put_nowait(_line(what, stored))
        return stored


def serve_stand_in(shape: PopulationShape, listener: socket.socket) -> None:
    """Serve one population until ended; for a process of its own."""
    app = StandIn(Population(shape)).app()
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", loop="uvloop")
    uvicorn.Server(config).run(sockets=[listener])


def _key(document: Document) -> str:
    meta = document["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"


def _line(what: str, document: Document) -> bytes:
    return msgspec.json.encode({"type": what, "object": document}) + b"\n"


def _reply(document: Document, code: int = 200) -> Response:
    return Response(msgspec.json.encode(document), status_code=code, media_type="application/json")


def _refuse(code: int, reason: str) -> Response:
    return _reply({"kind": "Status", "status": "Failure", "reason": reason, "code": code}, code)


async def _not_here(request: Request) -> Response:
    """Events are taken and forgotten; nothing else is here."""
    if request.method == "POST" and request.url.path.endswith("/events"):
        document = msgspec.json.decode(await request.body())
        document["metadata"]["resourceVersion"] = "1"
        return _reply(document, 201)
    return _refuse(404, "NotFound")
