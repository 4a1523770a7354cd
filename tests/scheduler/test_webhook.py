"""The webhook over HTTP, on both applications that serve it."""

import asyncio
import base64
from typing import Any

import httpx
import msgspec
import pytest
from starlette.applications import Starlette

from json_patch import apply_patch
from kubernetes_builders import container, pod_document
from scheduler.worlds import cluster_of
from vramline.explain.history import History
from vramline.scheduler import webhook
from vramline.scheduler.app import build_app
from vramline.scheduler.webhook import build_webhook_app
from vramline.wire.admission import AdmissionOptions, SchedulerNamePolicy
from vramline.wire.pod_patch import PatchOperation

NEVER = AdmissionOptions(scheduler_name_policy=SchedulerNamePolicy.NEVER)


def open_app(options: AdmissionOptions | None = None, *, ready: bool = True) -> Starlette:
    return build_webhook_app(options or AdmissionOptions(), is_ready=lambda: ready)


def call(app: Starlette, method: str, path: str, content: bytes | None = None) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="https://127.0.0.1") as client:
            return await client.request(method, path, content=content)

    return asyncio.run(send())


def review(pod: dict[str, Any]) -> bytes:
    request = {"uid": "u", "kind": {"group": "", "kind": "Pod"}, "operation": "CREATE", "object": pod}
    return msgspec.json.encode(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    )


@pytest.mark.parametrize(
    "app",
    [
        pytest.param(open_app(), id="the open address"),
        pytest.param(build_app(cluster_of(), History()), id="loopback"),
    ],
)
def test_a_pod_is_changed_whatever_follows_the_path(app: Starlette) -> None:
    pod = pod_document(container(gpu=1, gpumem=8000))

    response = call(app, "POST", "/webhook?timeout=2s", review(pod)).json()["response"]

    patch = msgspec.json.decode(base64.b64decode(response["patch"]), type=list[PatchOperation])
    assert apply_patch(pod, patch)["spec"]["schedulerName"] == "vramline"


def test_the_options_count() -> None:
    response = call(open_app(NEVER), "POST", "/webhook", review(pod_document(container(gpu=1)))).json()

    assert response["response"]["warnings"] == [
        "schedulerName default-scheduler is kept: Vramline does not place this pod"
    ]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"kind":"AdmissionReview"}', b"\xff"])
def test_a_bad_body_is_400_with_a_reason(body: bytes) -> None:
    answer = call(open_app(), "POST", "/webhook", body)

    assert answer.status_code == httpx.codes.BAD_REQUEST
    assert answer.json()["error"]


def test_a_body_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "MAX_REVIEW", 10)

    assert call(open_app(), "POST", "/webhook", b"x" * 11).status_code == 413


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/webhook"),
        ("POST", "/filter"),
        ("POST", "/bind"),
        ("GET", "/snapshot"),
        ("GET", "/api/v1/gpus"),
    ],
)
def test_nothing_else_is_open(method: str, path: str) -> None:
    assert call(open_app(), method, path, b"{}").status_code in {404, 405}


@pytest.mark.parametrize(("ready", "code"), [(True, 200), (False, 503)])
def test_readiness_is_what_the_owner_says(ready: bool, code: int) -> None:
    assert call(open_app(ready=ready), "GET", "/readyz").status_code == code
    assert call(open_app(ready=ready), "GET", "/healthz").status_code == 200
