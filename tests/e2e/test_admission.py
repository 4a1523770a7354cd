"""The webhook and a real API server: what is changed, refused and left alone, and what happens without it."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from e2e.admission_world import (
    CONFIGURATION,
    REGISTRATION,
    BrokenServer,
    Webhook,
    create_namespace,
    install_policies,
    pod,
    pods_of,
)
from json_patch import apply_patch
from vramline.kube.certificates import Lifetimes
from vramline.wire.admission import AdmissionOptions, Admitted, plan_admission

DRY = {"dryRun": "All"}
TEAM = pods_of("team")
ROTATIONS = 4
ALWAYS_DUE = Lifetimes(
    authority_margin=dt.timedelta(days=400),
    server_margin=dt.timedelta(days=0),
    settle=dt.timedelta(seconds=1),
)


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        create_namespace(client, "vramline-system")
        create_namespace(client, "gpu-operator")
        create_namespace(client, "team")
        create_namespace(client, "closed", **{"vramline.io/side-doors": "closed"})
        install_policies(client)
        yield client


@pytest.fixture(scope="module")
def webhook(plane: ControlPlane, admin: httpx.Client) -> Iterator[Webhook]:
    running = Webhook(plane, lifetimes=ALWAYS_DUE)
    running.start(admin)
    yield running
    running.stop()


def create(admin: httpx.Client, body: dict[str, Any], path: str = TEAM, **params: str) -> httpx.Response:
    return admin.post(path, json=body, params=params)


# ── with the webhook ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("webhook")
def test_a_gpu_pod_is_stored_as_planned(admin: httpx.Client) -> None:
    body = pod(
        "planned",
        limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8k", "cpu": "1"},
        initContainers=[
            {"name": "side", "image": "i", "restartPolicy": "Always"},
            {"name": "fetch", "image": "i"},
        ],
    )
    body["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    plan = plan_admission(body, operation="CREATE", options=AdmissionOptions())
    assert isinstance(plan, Admitted)
    wanted = apply_patch(body, plan.patch)

    answer = create(admin, body)

    assert answer.status_code == httpx.codes.CREATED, answer.text
    stored = answer.json()
    assert stored["spec"]["schedulerName"] == "vramline"
    assert stored["metadata"]["annotations"] == wanted["metadata"]["annotations"]
    for part in ("initContainers", "containers"):
        for made, planned in zip(stored["spec"][part], wanted["spec"][part], strict=True):
            assert made["env"] == planned["env"]
            assert made["resources"].get("limits") == planned.get("resources", {}).get("limits")
    assert "container main: NVIDIA_VISIBLE_DEVICES = 'all' is replaced" in answer.headers["Warning"]


def test_a_stored_pod_can_be_created_again_elsewhere(admin: httpx.Client, webhook: Webhook) -> None:
    first = create(
        admin, pod("again", annotations={"gpu-fraction": "0.5"}, limits={"nvidia.com/gpu": "1"})
    ).json()
    copied = {
        "metadata": {"name": "again", "annotations": first["metadata"]["annotations"]},
        "spec": first["spec"],
    }
    calls = webhook.calls

    second = create(admin, copied, pods_of("default"), **DRY)

    assert second.status_code == httpx.codes.CREATED, second.text
    assert second.json()["spec"] == first["spec"]
    assert webhook.calls > calls


@pytest.mark.usefixtures("webhook")
def test_a_refused_pod_shows_the_exact_message(admin: httpx.Client) -> None:
    answer = create(admin, pod("bad", annotations={"gpu-memory": "8Gi"}))

    assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    assert answer.json()["message"] == (
        'admission webhook "asks.vramline.io" denied the request: Pod team/bad: annotation gpu-memory = '
        "'8Gi': counts MiB and takes no unit; accepted: 8192 for 8Gi"
    )


def test_a_container_that_another_webhook_adds_later_sees_the_cards_too(
    admin: httpx.Client, webhook: Webhook
) -> None:
    ours = admin.get(CONFIGURATION).json()["webhooks"][0]
    other = {
        **{key: ours[key] for key in ("admissionReviewVersions", "rules", "sideEffects", "timeoutSeconds")},
        "name": "inject.example.com",
        "clientConfig": {**ours["clientConfig"], "url": webhook.url.replace("/webhook", "/inject")},
        "objectSelector": {"matchLabels": {"inject": "yes"}},
    }
    path = f"{REGISTRATION}/mutatingwebhookconfigurations"
    admin.post(path, json={"metadata": {"name": "zz-inject"}, "webhooks": [other]}).raise_for_status()
    body = pod("injected", annotations={"gpu-memory": "8000"}, labels={"inject": "yes"})
    stored: dict[str, Any] = {}

    def is_injected() -> bool:
        stored.update(create(admin, body, **DRY).raise_for_status().json())
        return len(stored["spec"]["containers"]) == 2

    wait_until(is_injected, "the other webhook", seconds=60.0)
    admin.delete(f"{path}/zz-inject").raise_for_status()

    for container in stored["spec"]["containers"]:
        assert [each["name"] for each in container["env"]] == ["NVIDIA_VISIBLE_DEVICES", "GPU_PORTION"]


SPELLINGS: list[dict[str, Any]] = [
    {"annotations": {"vramline.io/vram": "8Gi"}},
    {"annotations": {"vramline.io/gpus": "2"}},
    {"annotations": {"vramline.io/ask": "{}"}},
    {"annotations": {"vramline.io/allocation": "{}"}},
    {"annotations": {"vramline.io/visible-devices": "GPU-1"}},
    {"annotations": {"gpu-memory": "8000"}},
    {"annotations": {"gpu-fraction": "0.5"}},
    {"annotations": {"gpu-fraction-num-devices": "2"}},
    {"annotations": {"gpu-fraction-container-name": "main"}},
    {"annotations": {"nvidia.com/container.main.gpu-memory.request": "1Gi"}},
    {"annotations": {"nvidia.com/gpumem": "8000"}},
    {"limits": {"nvidia.com/gpu": "1"}},
    {"limits": {"nvidia.com/gpu.shared": "1"}},
    {"limits": {"nvidia.com/gpumem": "8000"}},
    {"limits": {"nvidia.com/gpumem-percentage": "50"}},
    {"limits": {"nvidia.com/gpucores": "50"}},
    {"limits": {"vramline.io/vram": "8"}},
    {"initContainers": [{"name": "i", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
]
NO_SPELLINGS: list[dict[str, Any]] = [
    {},
    {"annotations": {"other": "x"}, "limits": {"cpu": "1"}},
    {"annotations": {"nvidia.com/use-gputype": "A100", "hami.io/node-scheduler-policy": "binpack"}},
    {"limits": {"nvidia.com/mig-1g.5gb": "1"}},
    {"limits": {"amd.com/gpu": "1"}},
    {"labels": {"app": "web", "runai-gpu-group": "g"}},
    {"nodeName": "n1", "initContainers": [{"name": "i", "image": "i"}]},
]


@pytest.mark.parametrize("spelling", SPELLINGS, ids=str)
def test_every_spelling_reaches_the_webhook(
    admin: httpx.Client, webhook: Webhook, spelling: dict[str, Any]
) -> None:
    calls = webhook.calls

    create(admin, pod("spelled", **spelling), **DRY)

    assert webhook.calls == calls + 1


@pytest.mark.parametrize("fields", NO_SPELLINGS, ids=str)
def test_other_pods_never_reach_the_webhook(
    admin: httpx.Client, webhook: Webhook, fields: dict[str, Any]
) -> None:
    calls = webhook.calls

    answer = create(admin, pod("plain", **fields), **DRY)

    assert answer.status_code == httpx.codes.CREATED, answer.text
    assert webhook.calls == calls


def test_namespaces_of_operators_are_left_alone(admin: httpx.Client, webhook: Webhook) -> None:
    calls = webhook.calls
    body = pod("validator", limits={"nvidia.com/gpu": "1"}, nodeName="n1")

    answer = create(admin, body, pods_of("gpu-operator"), **DRY)

    assert answer.status_code == httpx.codes.CREATED, answer.text
    assert webhook.calls == calls


def test_an_ephemeral_container_gets_the_cards_of_its_pod(admin: httpx.Client, webhook: Webhook) -> None:
    create(admin, pod("debugged", annotations={"gpu-memory": "8000"})).raise_for_status()
    create(admin, pod("plain-debugged")).raise_for_status()
    added = {"name": "debug", "image": "i", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    change = {"spec": {"ephemeralContainers": [added]}}
    headers = {"Content-Type": "application/strategic-merge-patch+json"}

    ours = admin.patch(f"{TEAM}/debugged/ephemeralcontainers", json=change, headers=headers)
    calls = webhook.calls
    other = admin.patch(f"{TEAM}/plain-debugged/ephemeralcontainers", json=change, headers=headers)

    assert ours.status_code == other.status_code == httpx.codes.OK, ours.text
    assert "fieldRef" in ours.json()["spec"]["ephemeralContainers"][0]["env"][0]["valueFrom"]
    assert other.json()["spec"]["ephemeralContainers"][0]["env"] == added["env"]
    assert webhook.calls == calls


def test_no_review_fails_while_certificates_rotate(admin: httpx.Client, webhook: Webhook) -> None:
    """Each rotation is a new authority and, once it had time to be heard of, a certificate signed by it."""
    asking = pod("rotating", annotations={"vramline.io/vram": "1"})
    served, missed = set[str](), 0
    while len(served) <= ROTATIONS:
        webhook.check_certificates()
        secret = admin.get("/api/v1/namespaces/vramline-system/secrets/vramline-webhook-tls").json()
        served.add(secret["data"]["tls.crt"])
        for _ in range(10):
            calls = webhook.calls
            answer = create(admin, asking, **DRY).json()
            missed += answer["spec"]["schedulerName"] != "vramline" or webhook.calls == calls

    assert missed == 0
    trusted = {each["clientConfig"]["caBundle"] for each in admin.get(CONFIGURATION).json()["webhooks"]}
    assert trusted == {secret["data"]["ca.crt"]}
    assert secret["metadata"]["labels"] == {"app": "vramline"}


# ── without it ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module", params=["gone", "silent", "untrusted"])
def broken(request: pytest.FixtureRequest, admin: httpx.Client, webhook: Webhook) -> Iterator[BrokenServer]:
    server = BrokenServer(request.param)
    with server.in_place_of(webhook, admin):
        yield server
    server.close()


def test_pods_without_a_gpu_do_not_notice(admin: httpx.Client, broken: BrokenServer) -> None:
    visits = broken.visits
    for number in range(40):
        create(admin, pod(f"quick-{number}", limits={"cpu": "1"}), **DRY).raise_for_status()

    assert broken.visits == visits


def test_a_gpu_pod_is_stored_as_it_was_sent(admin: httpx.Client, broken: BrokenServer) -> None:
    visits = broken.visits
    answer = create(admin, pod("late", annotations={"gpu-memory": "8000"}), **DRY)

    assert answer.status_code == httpx.codes.CREATED
    assert broken.visits > visits
    assert answer.json()["spec"]["schedulerName"] == "default-scheduler"
    assert answer.json()["metadata"]["annotations"] == {"gpu-memory": "8000"}


@pytest.mark.usefixtures("broken")
def test_where_side_doors_are_closed_nobody_else_gets_the_gpu_pod(admin: httpx.Client) -> None:
    answer = create(admin, pod("late", annotations={"gpu-memory": "8000"}), pods_of("closed"), **DRY)

    assert answer.status_code == httpx.codes.FORBIDDEN
    assert "pods with a GPU request are placed by vramline, not by default-scheduler" in answer.text


@pytest.mark.usefixtures("broken")
def test_what_is_sealed_stays_sealed(admin: httpx.Client) -> None:
    forged = {"vramline.io/allocation": msgspec.json.encode({"node": "n1"}).decode()}

    answer = create(admin, pod("forged", annotations=forged), **DRY)

    assert answer.status_code == httpx.codes.FORBIDDEN
    assert "written by Vramline alone" in answer.text
