"""Vramline as the extender of a real kube-scheduler, against a real API server."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from controlplane.kubernetes import wait_for_pod
from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import (
    VramlineProcess,
    add_gpu_node,
    apply_crds,
    extender_configuration,
    gpu_pod,
    report_cards,
    run_scheduler,
)

LEDGERS = "/apis/vramline.io/v1alpha1/gpuledgers"


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        apply_crds(client)
        yield client


@pytest.fixture(scope="module")
def vramline(plane: ControlPlane, admin: httpx.Client) -> Iterator[VramlineProcess]:
    """The scheduler, leading, with kube-scheduler beside it."""
    admin.get("/version").raise_for_status()
    with run_scheduler(plane) as process:
        plane.start_scheduler(extender_configuration(process.port))
        yield process


@pytest.fixture
def namespace(admin: httpx.Client, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.replace("_", "-")[:60].strip("-").lower()
    admin.post("/api/v1/namespaces", json={"metadata": {"name": name}}).raise_for_status()
    return name


def create(admin: httpx.Client, namespace: str, pod: dict[str, Any]) -> None:
    admin.post(f"/api/v1/namespaces/{namespace}/pods", json=pod).raise_for_status()


def pods(admin: httpx.Client, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = admin.get(f"/api/v1/namespaces/{namespace}/pods").json()["items"]
    return found


def bound(admin: httpx.Client, namespace: str) -> list[dict[str, Any]]:
    return [pod for pod in pods(admin, namespace) if pod["spec"].get("nodeName")]


def waiting(admin: httpx.Client, namespace: str) -> list[str]:
    """Messages of pods that kube-scheduler could not place."""
    return [
        condition["message"]
        for pod in pods(admin, namespace)
        for condition in pod["status"].get("conditions", [])
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    ]


def card_of(pod: dict[str, Any]) -> str:
    uuid: str = json.loads(pod["metadata"]["annotations"]["vramline.io/allocation"])["gpus"][0]["uuid"]
    return uuid


def select(pod: dict[str, Any], node: str) -> dict[str, Any]:
    """Keep a test's pods on its own node."""
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return pod


def add_node(admin: httpx.Client, name: str, *totals: int, advertised: int | None = None) -> None:
    add_gpu_node(admin, name, *totals, advertised=advertised)
    patch = {"metadata": {"labels": {"kubernetes.io/hostname": name}}}
    headers = {"Content-Type": "application/merge-patch+json"}
    admin.patch(f"/api/v1/nodes/{name}", json=patch, headers=headers).raise_for_status()


@pytest.mark.usefixtures("vramline")
def test_one_card_advertised_100_times_holds_four_pods_of_8000(admin: httpx.Client, namespace: str) -> None:
    add_node(admin, "sliced", 32_600, advertised=100)
    for number in range(5):
        create(admin, namespace, select(gpu_pod(f"p{number}", 8_000), "sliced"))
    # A pod may have been refused before the node's report arrived; the last word is about memory.
    wait_until(
        lambda: (
            len(bound(admin, namespace)) == 4
            and ["InsufficientVram" in message for message in waiting(admin, namespace)] == [True]
        ),
        "four bound, and the fifth told why not",
    )

    assert {card_of(pod) for pod in bound(admin, namespace)} == {"GPU-sliced-0"}
    ledger = admin.get(f"{LEDGERS}/sliced").json()
    assert sum(claim["mib"] for claim in ledger["spec"]["claims"]["GPU-sliced-0"]) == 32_000


@pytest.mark.usefixtures("vramline")
def test_memory_of_a_terminating_pod_is_not_handed_out_until_the_card_is_free(
    admin: httpx.Client, namespace: str
) -> None:
    add_node(admin, "leaving", 32_600)
    create(admin, namespace, select(gpu_pod("old", 24_000), "leaving"))
    old = wait_for_pod(admin, namespace, "old", lambda pod: "nodeName" in pod["spec"])
    uid = old["metadata"]["uid"]
    in_use = {
        "totalMiB": 32_600,
        "usedMiB": 24_000,
        "processes": [{"pid": 1, "usedMiB": 24_000, "podUID": uid}],
    }
    report_cards(admin, "leaving", [in_use])
    admin.delete(
        f"/api/v1/namespaces/{namespace}/pods/old", params={"gracePeriodSeconds": 0}
    ).raise_for_status()
    create(admin, namespace, select(gpu_pod("new", 16_000), "leaving"))
    wait_until(
        lambda: any("InsufficientVram" in message for message in waiting(admin, namespace)),
        "the new pod to wait",
    )
    assert bound(admin, namespace) == []

    wait_until(
        lambda: _is_free_after_report(admin, namespace),
        "the new pod to be bound once the card is free",
        seconds=60.0,
    )


def _is_free_after_report(admin: httpx.Client, namespace: str) -> bool:
    """Report the card free, as an agent would, and look."""
    report_cards(admin, "leaving", [{"totalMiB": 32_600, "usedMiB": 0, "processes": []}])
    return bool(bound(admin, namespace))


@pytest.mark.usefixtures("vramline")
def test_forty_pods_for_one_node_at_once_are_all_bound(admin: httpx.Client, namespace: str) -> None:
    add_node(admin, "burst", 81_559)
    for number in range(40):
        create(admin, namespace, select(gpu_pod(f"p{number}", 2_000), "burst"))

    wait_until(lambda: len(bound(admin, namespace)) == 40, "forty pods")


@pytest.mark.usefixtures("vramline")
def test_sixteen_halves_on_eight_cards_are_two_on_each(admin: httpx.Client, namespace: str) -> None:
    add_node(admin, "halves", *[46_068] * 8)
    for number in range(16):
        create(admin, namespace, select(gpu_pod(f"p{number}", (46_068 - 100) // 2), "halves"))
    wait_until(lambda: len(bound(admin, namespace)) == 16, "sixteen pods")
    cards = [card_of(pod) for pod in bound(admin, namespace)]

    assert sorted(cards.count(card) for card in set(cards)) == [2] * 8


@pytest.mark.usefixtures("vramline")
def test_twenty_four_whole_cards_on_seven_free_ones_are_exactly_seven(
    admin: httpx.Client, namespace: str
) -> None:
    add_node(admin, "seven", *[46_068] * 7)
    for number in range(24):
        create(admin, namespace, select(gpu_pod(f"p{number}", 46_068 - 100), "seven"))
    # A pod may have been refused before the node's report arrived; the last word is about memory.
    wait_until(
        lambda: sum("InsufficientVram" in message for message in waiting(admin, namespace)) == 17,
        "seventeen told that there is no memory",
    )
    wait_until(lambda: len(bound(admin, namespace)) == 7, "seven bound")

    assert len({card_of(pod) for pod in bound(admin, namespace)}) == 7


def test_the_state_can_be_asked_for(admin: httpx.Client, vramline: VramlineProcess) -> None:
    add_node(admin, "asked", 46_068)
    wait_until(
        lambda: any(gpu["node"] == "asked" for gpu in vramline.client.get("/api/v1/gpus").json()["gpus"]),
        "the new node",
    )

    assert vramline.client.get("/readyz").is_success
