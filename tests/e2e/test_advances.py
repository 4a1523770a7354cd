"""Reservations against a real API server: who leads makes them, and they outlive him."""

import base64
import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import (
    VramlineProcess,
    add_gpu_node,
    apply_crds,
    extender_configuration,
    gpu_pod,
    run_scheduler,
)
from vramline.errors import TransientError
from vramline.inference.reservation_client import ReservationClient

ADDRESS = "/api/v1/reservations"
PODS = "/api/v1/namespaces/default/pods"
WISH = {"owner": {"namespace": "default", "name": "llama"}, "ask": {"mib": 30_000}}


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        apply_crds(client)
        add_gpu_node(client, "n1", 32_600)
        yield client


def start(plane: ControlPlane, stack: ExitStack, name: str) -> VramlineProcess:
    process = stack.enter_context(run_scheduler(plane, name=name, leads=False, env={"POD_NAME": name}))
    wait_until(lambda: process.client.get("/readyz").is_success, f"{name} to be ready")
    return process


def listed(process: VramlineProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = process.client.get(ADDRESS).raise_for_status().json()["reservations"]
    return found


def test_a_reservation_outlives_its_leader_and_is_taken_over_by_its_owners_pod_alone(
    plane: ControlPlane, admin: httpx.Client
) -> None:
    with ExitStack() as stack:
        first = start(plane, stack, "first")
        wait_until(first.leads, "a leader")
        second = start(plane, stack, "second")

        wait_until(lambda: "first" in second.client.post(ADDRESS, json=WISH).json()["leader"], "the leader")
        assert second.client.post(ADDRESS, json=WISH).status_code == 503
        made = first.client.post(ADDRESS, json=WISH)
        assert made.status_code == 201
        token = made.json()["token"]
        wait_until(lambda: [each["owner"] for each in listed(second)] == ["default/llama"], "the watch")

        first.child.signal(signal.SIGKILL)
        wait_until(second.leads, "the second to lead")
        plane.start_scheduler(extender_configuration(second.port))
        assert [each["owner"] for each in listed(second)] == ["default/llama"]
        assert second.client.post(ADDRESS, json=WISH).status_code == 409

        admin.post(PODS, json=gpu_pod("stranger", 30_000)).raise_for_status()
        wait_until(lambda: waits(admin, "stranger"), "the stranger to be refused")
        owned = gpu_pod("llama-engine-0", 30_000)
        owned["metadata"]["annotations"]["vramline.io/reservation"] = token
        admin.post(PODS, json=owned).raise_for_status()
        wait_until(lambda: node_of(admin, "llama-engine-0") == "n1", "the owner's pod to be bound")

        assert node_of(admin, "stranger") == ""
        wait_until(lambda: listed(second) == [], "the watch")
        ledger = admin.get("/apis/vramline.io/v1alpha1/gpuledgers/n1").json()
        (claim,) = ledger["spec"]["claims"]["GPU-n1-0"]
        assert (claim["pod"], "until" in claim) == ("default/llama-engine-0", False)
        assert token not in json.dumps(ledger)


def test_a_reservation_ends_when_its_time_is_over_or_its_caller_says_so(
    plane: ControlPlane, admin: httpx.Client
) -> None:
    add_gpu_node(admin, "n2", 32_600)
    with ExitStack() as stack:
        process = start(plane, stack, "third")
        wait_until(process.leads, "a leader")

        made = process.client.post(ADDRESS, json=WISH).json()
        assert made["node"] == "n2"
        assert process.client.post(ADDRESS, json=WISH).status_code == 409
        assert process.client.delete(f"{ADDRESS}/{made['token']}").status_code == 200
        assert listed(process) == []

        assert process.client.post(ADDRESS, json={**WISH, "ttlSeconds": 1}).json()["node"] == "n2"
        wait_until(lambda: listed(process) == [], "its end")
        assert process.client.post(ADDRESS, json=WISH).status_code == 201


def token_for(admin: httpx.Client, account: str, *, may: bool) -> str:
    """Return the token of a new service account that may create pods, or not."""
    name = {"metadata": {"name": account}}
    admin.post("/api/v1/namespaces/default/serviceaccounts", json=name).raise_for_status()
    if may:
        rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
        admin.post(f"{rbac}/roles", json={**name, "rules": rules}).raise_for_status()
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
        subject = {"kind": "ServiceAccount", "name": account, "namespace": "default"}
        admin.post(f"{rbac}/rolebindings", json={**name, "roleRef": role, "subjects": [subject]})
    path = f"/api/v1/namespaces/default/serviceaccounts/{account}/token"
    made: str = admin.post(path, json={"spec": {}}).raise_for_status().json()["status"]["token"]
    return made


def test_from_outside_who_may_create_pods_there_may_reserve(
    plane: ControlPlane, admin: httpx.Client, tmp_path: Path
) -> None:
    add_gpu_node(admin, "n3", 32_600)
    secret = {"metadata": {"name": "vramline-webhook-tls"}, "type": "Opaque"}
    secrets = "/api/v1/namespaces/vramline-system/secrets"
    admin.post(secrets, json=secret).raise_for_status()
    with run_scheduler(plane, name="outside", options=["--dashboard-listen", "127.0.0.1:0"]) as process:
        log = process.child.log
        wait_until(lambda: "dashboard.started" in log.read_text(), "the listener")
        (line,) = [line for line in log.read_text().splitlines() if "dashboard.started" in line]
        authority = tmp_path / "ca.crt"
        wait_until(
            lambda: "ca.crt" in (admin.get(f"{secrets}/vramline-webhook-tls").json().get("data") or {}), "CA"
        )
        data = admin.get(f"{secrets}/vramline-webhook-tls").json()["data"]
        authority.write_bytes(base64.b64decode(data["ca.crt"]))
        server = f"https://127.0.0.1:{json.loads(line)['listen'][1]}"
        told = {}
        for name, token in {
            "ann": token_for(admin, "ann", may=True),
            "bob": token_for(admin, "bob", may=False),
            "nobody": "x",
        }.items():
            shown = tmp_path / name
            shown.write_text(token, encoding="utf-8")
            client = ReservationClient(server, token_file=str(shown), ca_file=str(authority))
            told[name] = ask_for(client)

    assert told["ann"] in {"n1", "n2", "n3"}
    assert "system:serviceaccount:default:bob may not create pods in namespace default" in told["bob"]
    assert "does not know the token" in told["nobody"]


def ask_for(client: ReservationClient) -> str:
    """Return where memory was held, or why it was not."""
    pod = gpu_pod("llama-engine", 30_000)
    try:
        return client.reserve(namespace="default", name="llama", pod=pod, ttl_s=60).node
    except TransientError as error:
        return str(error)


def node_of(admin: httpx.Client, name: str) -> str:
    return admin.get(f"{PODS}/{name}").raise_for_status().json()["spec"].get("nodeName") or ""


def waits(admin: httpx.Client, name: str) -> bool:
    status = admin.get(f"{PODS}/{name}").raise_for_status().json()["status"]
    return any(each.get("reason") == "Unschedulable" for each in status.get("conditions", []))
