"""Addresses of the pages. Whatever is asked, the answer is a page whose headers let nothing foreign in."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from importlib.resources import files

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from vramline.dashboard.cluster_page import ClusterPage
from vramline.dashboard.decisions_page import DecisionsPage
from vramline.dashboard.forms import read_field
from vramline.dashboard.gpu_page import GpuPage
from vramline.dashboard.headers import dress
from vramline.dashboard.markup import Templates
from vramline.dashboard.pod_page import PodPage
from vramline.dashboard.pods_page import Advice, PodsPage
from vramline.dashboard.queries import read_card_query, read_hours, read_number, read_pod_query
from vramline.dashboard.streams import Scene, follow
from vramline.dashboard.viewers import Gate, OpenGate, Viewer
from vramline.dashboard.what_if_page import MAX_MANIFEST, ReadText, WhatIfPage
from vramline.dashboard.window import Window
from vramline.errors import RequestError

__all__ = ["build_pages"]

_KINDS = {"css": "text/css", "js": "text/javascript", "txt": "text/plain", "svg": "image/svg+xml"}
_MOST_STREAMS = 200
"""Pages that are kept up to date at one time; whoever comes later gets a page that stands still."""

_BEATS_OF_THE_KNOWN = 120
"""After a minute a stream ends, and who opens it again is asked again what they may see."""

_Page = Callable[[Request, Viewer], Awaitable[Response]]


def build_pages(window: Window, *, read_text: ReadText, gate: Gate | None = None) -> Iterable[BaseRoute]:
    """Return the routes of all pages over one scheduler. Without a gate they are for this machine alone.

    `read_text` reads manifests that people paste.
    """
    gate = gate or OpenGate()
    pages = _Pages(window, gate, read_text)
    gets: dict[str, _Page] = {
        "/": pages.cluster,
        "/pods": pages.pods,
        "/pods/{namespace}/{name}": pages.pod,
        "/gpus/{uuid:path}": pages.gpu,
        "/series/{uuid:path}": pages.series,
        "/decisions": pages.decisions,
        "/decisions/{number}": pages.decision,
        "/what-if": pages.what_if,
        "/live/cluster": pages.live_cluster,
        "/live/pods": pages.live_pods,
        "/live/pods/{namespace}/{name}": pages.live_pod,
        "/live/gpus/{uuid:path}": pages.live_gpu,
        "/live/decisions": pages.live_decisions,
    }
    return [
        *(Route(path, pages.guard(page), methods=["GET"]) for path, page in gets.items()),
        Route("/what-if", pages.guard(pages.what_if_of_manifest), methods=["POST"]),
        Route("/assets/{tag}/{name}", _give_asset, methods=["GET"]),
        *gate.routes(),
    ]


class _Pages:
    """One method an address."""

    def __init__(self, window: Window, gate: Gate, read_text: ReadText) -> None:
        self._window = window
        self._gate = gate
        self._templates = Templates()
        self._streams = 0
        self._cluster = ClusterPage(window, self._templates)
        self._pods = PodsPage(window, self._templates, Advice(window))
        self._pod = PodPage(window, self._templates)
        self._gpu = GpuPage(window, self._templates)
        self._decisions = DecisionsPage(window, self._templates)
        self._what_if = WhatIfPage(window, self._templates, read_text)

    def guard(self, page: _Page) -> Callable[[Request], Awaitable[Response]]:
        """Ask who it is first, and turn what is wrong with a request into a page that says so."""

        async def endpoint(request: Request) -> Response:
            viewer = await self._gate.admit(request)
            if isinstance(viewer, Response):
                return dress(viewer)
            try:
                return dress(await page(request, viewer))
            except RequestError as error:
                return dress(self._refuse(400, str(error), viewer))

        return endpoint

    async def cluster(self, request: Request, viewer: Viewer) -> Response:
        return HTMLResponse(await self._cluster.make(viewer, read_card_query(request.query_params)))

    async def pods(self, request: Request, viewer: Viewer) -> Response:
        return HTMLResponse(self._pods.make(viewer, read_pod_query(request.query_params)))

    async def pod(self, request: Request, viewer: Viewer) -> Response:
        key = _key_in(request)
        page = await self._pod.make(viewer, key)
        return self._found(page, f"No pod {key} in the cluster, nor among the last decisions.", viewer)

    async def gpu(self, request: Request, viewer: Viewer) -> Response:
        uuid = request.path_params["uuid"]
        return self._found(await self._gpu.make(viewer, uuid), f"No GPU {uuid} on any node.", viewer)

    async def series(self, request: Request, _viewer: Viewer) -> Response:
        hours = read_hours(request.query_params)
        series = await self._gpu.series(request.path_params["uuid"], hours)
        return Response(msgspec.json.encode(series), media_type="application/json")

    async def decisions(self, _request: Request, viewer: Viewer) -> Response:
        return HTMLResponse(self._decisions.make(viewer))

    async def decision(self, request: Request, viewer: Viewer) -> Response:
        number = read_number(request.path_params["number"])
        page = self._decisions.make_one(viewer, number)
        return self._found(page, f"Decision {number} is not among the last ones.", viewer)

    async def what_if(self, request: Request, viewer: Viewer) -> Response:
        status, page = self._what_if.make(viewer, dict(request.query_params))
        return HTMLResponse(page, status_code=status)

    async def what_if_of_manifest(self, request: Request, viewer: Viewer) -> Response:
        text = await read_field(request, "manifest", most=MAX_MANIFEST)
        status, page = self._what_if.make_of_manifest(viewer, text)
        return HTMLResponse(page, status_code=status)

    async def live_cluster(self, request: Request, viewer: Viewer) -> Response:
        return self._stream(self._cluster.follow(viewer, read_card_query(request.query_params)), viewer)

    async def live_pods(self, request: Request, viewer: Viewer) -> Response:
        return self._stream(self._pods.follow(viewer, read_pod_query(request.query_params)), viewer)

    async def live_pod(self, request: Request, viewer: Viewer) -> Response:
        return self._stream(await self._pod.follow(viewer, _key_in(request)), viewer)

    async def live_gpu(self, request: Request, viewer: Viewer) -> Response:
        return self._stream(self._gpu.follow(viewer, request.path_params["uuid"]), viewer)

    async def live_decisions(self, _request: Request, viewer: Viewer) -> Response:
        return self._stream(self._decisions.follow(viewer), viewer)

    def _stream(self, scene: Scene, viewer: Viewer) -> Response:
        if self._streams >= _MOST_STREAMS:
            return self._refuse(503, "Too many pages are open; this one stands still.", viewer)
        return StreamingResponse(
            self._counted(scene, viewer),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store"},
        )

    async def _counted(self, scene: Scene, viewer: Viewer) -> AsyncIterator[bytes]:
        self._streams += 1
        most = _BEATS_OF_THE_KNOWN if viewer.is_known else None
        try:
            async for message in follow(scene, self._window.cluster.now, most=most):
                yield message
        finally:
            self._streams -= 1

    def _found(self, page: str | None, otherwise: str, viewer: Viewer) -> Response:
        return self._refuse(404, otherwise, viewer) if page is None else HTMLResponse(page)

    def _refuse(self, status: int, problem: str, viewer: Viewer) -> Response:
        now = self._window.cluster.now()
        page = self._templates.page("error.html", viewer=viewer, now=now, status=status, problem=problem)
        return HTMLResponse(page, status_code=status)


async def _give_asset(request: Request) -> Response:
    """Give a file that came with the package; its address changes with its content, so it may be kept."""
    name = request.path_params["name"]
    there = {each.name: each for each in files("vramline.dashboard").joinpath("assets").iterdir()}
    if name not in there:
        return dress(Response("no such file\n", status_code=404, media_type="text/plain"))
    kind = _KINDS[name.rpartition(".")[2]]
    kept = {"Cache-Control": "public, max-age=31536000, immutable"}
    return dress(Response(there[name].read_bytes(), media_type=kind, headers=kept))


def _key_in(request: Request) -> str:
    return f"{request.path_params['namespace']}/{request.path_params['name']}"
