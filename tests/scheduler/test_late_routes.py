"""Routes that are made late answer as if they had been there from the start."""

import asyncio

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from vramline.scheduler.late_routes import LateRoutes, list_routes


async def answer(request: Request) -> Response:
    return PlainTextResponse(f"{request.method} {request.url.path} {request.path_params}")


def ask(routes: list[BaseRoute], method: str, path: str) -> tuple[int, str]:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(Starlette(routes=routes))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.request(method, path)

    answered = asyncio.run(send())
    return answered.status_code, answered.text


def early() -> list[BaseRoute]:
    return [Route("/api", answer, methods=["GET"])]


def late() -> list[BaseRoute]:
    return [
        Route("/", answer, methods=["GET"]),
        Route("/what-if", answer, methods=["GET"]),
        Route("/what-if", answer, methods=["POST"]),
        Route("/gpus/{uuid:path}", answer, methods=["GET"]),
    ]


def last() -> list[BaseRoute]:
    return [Route("/openapi.json", answer, methods=["GET"])]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api"),
        ("POST", "/api"),
        ("GET", "/"),
        ("GET", "/what-if"),
        ("POST", "/what-if"),
        ("DELETE", "/what-if"),
        ("GET", "/gpus/GPU-1/of/many"),
        ("GET", "/nowhere"),
        ("GET", "/openapi.json"),
    ],
)
def test_every_address_is_answered_as_without(method: str, path: str) -> None:
    plain = ask([*early(), *late(), *last()], method, path)

    assert ask([*early(), LateRoutes(late), *last()], method, path) == plain


def test_they_are_made_once_and_not_before_somebody_asks() -> None:
    makings = []

    def make() -> list[BaseRoute]:
        makings.append(1)
        return late()

    routes = [*early(), LateRoutes(make)]
    ask(routes, "GET", "/api")
    assert not makings
    ask(routes, "GET", "/")
    ask(routes, "GET", "/what-if")
    assert len(makings) == 1


def test_all_of_them_are_listed() -> None:
    paths = [route.path for route in list_routes([*early(), LateRoutes(late)]) if isinstance(route, Route)]

    assert paths == ["/api", "/", "/what-if", "/what-if", "/gpus/{uuid:path}"]
