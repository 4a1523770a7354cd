"""Every address is called with what it should not be called with: no failure, no reflected script."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from dashboard.serving import Served, serve
from dashboard.worlds import app_of, busy_cluster, place
from vramline.explain.history import History
from vramline.scheduler.openapi import describe_routes

SCRIPT = "<script>alert(1)</script>"
LIVE = ("/live/cluster", "/live/pods")


@pytest.fixture(name="served", scope="module")
def give_served() -> Iterator[Served]:
    cluster, history = busy_cluster(), History()
    place(cluster, history, 4_000, "fits")
    place(cluster, history, 900_000, "big")
    with serve(app_of(cluster, history)) as served:
        yield served


DESCRIPTION = schemathesis.openapi.from_dict(describe_routes(app_of(busy_cluster()).routes))


@DESCRIPTION.exclude(path_regex="^/live/").parametrize()  # those never end
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_no_request_makes_the_server_fail(served: Served, case: schemathesis.Case[Any]) -> None:
    answer = case.call(base_url=served.base)

    assert answer.status_code < 500 or answer.status_code in {501, 503}
    assert "Traceback" not in answer.text


def test_every_route_is_described(served: Served) -> None:
    described = httpx.get(f"{served.base}/openapi.json").json()["paths"]

    assert {"/", "/pods", "/gpus/{uuid}", "/decisions/{number}", "/what-if", "/filter", "/snapshot"} <= set(
        described
    )
    assert described["/what-if"].keys() == {"get", "post"}


@pytest.mark.parametrize("path", LIVE)
@pytest.mark.parametrize(
    "query", ["page=0", "page=x", "state=odd&status=odd", f"node={'x' * 300}&name={'x' * 300}"]
)
def test_a_stream_of_nothing_sensible_is_refused(served: Served, path: str, query: str) -> None:
    assert httpx.get(f"{served.base}{path}?{query}").status_code == 400


def test_no_script_comes_back(served: Served) -> None:
    described = httpx.get(f"{served.base}/openapi.json").json()["paths"]
    for path, methods in described.items():
        for method, told in methods.items():
            if path.startswith("/live/"):
                continue
            names = {each["name"]: each["in"] for each in told["parameters"]}
            where = path
            for name, place_of in names.items():
                where = where.replace(f"{{{name}}}", SCRIPT) if place_of == "path" else where
            query = {name: SCRIPT for name, place_of in names.items() if place_of == "query"}
            form = {"manifest": SCRIPT, "token": SCRIPT} if method == "post" else None
            answer = httpx.request(method, served.base + where, params=query, data=form)
            is_page = answer.headers.get("content-type", "").startswith("text/html")

            assert answer.status_code < 500 or answer.status_code in {501, 503}, (method, path)
            assert not is_page or SCRIPT not in answer.text, (method, path)
