"""Reservations against a real API server: who leads makes them, and they outlive him."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
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

        short = process.client.post(ADDRESS, json={**WISH, "ttlSeconds": 1})
        assert short.json()["node"] == "n2"
        assert process.client.post(ADDRESS, json=WISH).status_code == 409
        wait_until(lambda: listed(process) == [], "its end")
        token = process.client.post(ADDRESS, json=WISH).json()["token"]

        assert process.client.delete(f"{ADDRESS}/{token}").status_code == 200
        assert listed(process) == []


def node_of(admin: httpx.Client, name: str) -> str:
    return admin.get(f"{PODS}/{name}").raise_for_status().json()["spec"].get("nodeName") or ""


def waits(admin: httpx.Client, name: str) -> bool:
    status = admin.get(f"{PODS}/{name}").raise_for_status().json()["status"]
    return any(each.get("reason") == "Unschedulable" for each in status.get("conditions", []))
