"""A cluster moves from HAMi and could move back, with the real API server and the real kube-scheduler.

HAMi is imitated: registers in both encodings and pods are written as it leaves them, and its own count is
made as it makes it, by the annotations of pods that name their node.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from controlplane.kubernetes import gpu_node
from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import (
    VramlineProcess,
    apply_crds,
    extender_configuration,
    gpu_pod,
    run_scheduler,
)
from vramline.wire.hami import (
    ContainerDevice,
    RegisteredGpu,
    decode_devices,
    encode_devices,
    encode_register,
    encode_register_as_commas,
)

PODS = "/api/v1/namespaces/default/pods"
MERGE = {"Content-Type": "application/merge-patch+json"}
TOTAL, MARGIN, ASK = 32_600, 100, 8_000
ENCODERS = {"json": encode_register, "commas": encode_register_as_commas}
CARDS = [f"GPU-{node}-{index}" for node in ENCODERS for index in range(2)]
THEIRS = {
    "one-card": ("json", [("GPU-json-0", 20_000)]),
    "beside-it": ("json", [("GPU-json-0", 4_000)]),
    "two-cards": ("commas", [("GPU-commas-0", 9_000), ("GPU-commas-1", 9_000)]),
}
"""What HAMi has given away: node, and MiB by card."""
HELD = {"GPU-json-0": 24_000, "GPU-json-1": 0, "GPU-commas-0": 9_000, "GPU-commas-1": 9_000}
TOO_MANY = 3
ROOM = sum((TOTAL - MARGIN - HELD[card]) // ASK for card in CARDS)


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        apply_crds(client)
        for name, encode in ENCODERS.items():
            cards = [
                RegisteredGpu(
                    id=f"GPU-{name}-{index}",
                    index=index,
                    count=10,
                    devmem=TOTAL,
                    devcore=100,
                    type="NVIDIA L40S",
                    mode="hami-core",
                    health=True,
                )
                for index in range(2)
            ]
            node = gpu_node(name, allocatable={"nvidia.com/gpu": "20"})
            node["metadata"]["annotations"] = {
                "hami.io/node-nvidia-register": encode(cards),
                "hami.io/node-handshake": "Requesting_2026-01-01 00:00:00",
            }
            client.post("/api/v1/nodes", json=node).raise_for_status()
        for name in THEIRS:
            place_as_hami(client, name)
        yield client


@pytest.fixture(scope="module")
def vramline(plane: ControlPlane, admin: httpx.Client) -> Iterator[VramlineProcess]:
    admin.get("/version").raise_for_status()
    with run_scheduler(plane, env={"VRAMLINE_ADOPTION": "all"}) as process:
        plane.start_scheduler(extender_configuration(process.port))
        yield process


def place_as_hami(admin: httpx.Client, name: str) -> None:
    """Leave a running pod behind as HAMi's scheduler and device plugin do."""
    node, cards = THEIRS[name]
    given = encode_devices([[ContainerDevice(uuid, "NVIDIA", mib, 0) for uuid, mib in cards]])
    limits = {"nvidia.com/gpu": str(len(cards)), "nvidia.com/gpumem": str(cards[0][1])}
    told = {
        "hami.io/vgpu-node": node,
        "hami.io/vgpu-time": "1767225600",
        "hami.io/vgpu-devices-allocated": given,
        "hami.io/vgpu-devices-to-allocate": ";",
        "hami.io/bind-phase": "success",
        "hami.io/bind-time": "1767225600",
    }
    resources = {"limits": limits, "requests": limits}
    container = {"name": "main", "image": "example", "resources": resources}
    pod: dict[str, Any] = {
        "metadata": {"name": name, "annotations": told, "labels": {"hami.io/vgpu-node": node}},
        "spec": {"schedulerName": "hami-scheduler", "containers": [container]},
    }
    admin.post(PODS, json=pod).raise_for_status()
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    admin.post(f"{PODS}/{name}/binding", json=binding).raise_for_status()
    running = {"status": {"phase": "Running"}}
    admin.patch(f"{PODS}/{name}/status", json=running, headers=MERGE).raise_for_status()


def held_by_us(vramline: VramlineProcess) -> dict[str, int]:
    gpus = vramline.client.get("/api/v1/gpus").raise_for_status().json()["gpus"]
    return {gpu["uuid"]: gpu["held_mib"] for gpu in gpus}


def counted_by_hami(admin: httpx.Client) -> dict[str, int]:
    """Count as HAMi's scheduler does: pods that name their node, by what they were allocated."""
    used = Counter(dict.fromkeys(CARDS, 0))
    for pod in admin.get(PODS).json()["items"]:
        told = pod["metadata"]["annotations"]
        if told.get("hami.io/vgpu-node") and pod["status"]["phase"] not in {"Succeeded", "Failed"}:
            assert told["hami.io/vgpu-node"] == pod["spec"].get("nodeName")
            for devices in decode_devices(told["hami.io/vgpu-devices-allocated"], subject="Pod"):
                used.update({device.uuid: device.mib for device in devices})
    return dict(used)


def bound(admin: httpx.Client) -> list[str]:
    pods = admin.get(PODS).json()["items"]
    return [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")]


def test_what_hami_gave_away_is_held_card_by_card(admin: httpx.Client, vramline: VramlineProcess) -> None:
    wait_until(lambda: held_by_us(vramline) == HELD, "HAMi's pods in our books")

    assert counted_by_hami(admin) == HELD


def test_around_them_exactly_as_many_pods_are_placed_as_fit_and_hami_would_count_each(
    admin: httpx.Client, vramline: VramlineProcess
) -> None:
    names = [f"ours-{number}" for number in range(ROOM + TOO_MANY)]
    for name in names:
        admin.post(PODS, json=gpu_pod(name, ASK)).raise_for_status()

    wait_until(lambda: len(bound(admin)) >= len(THEIRS) + ROOM, f"{ROOM} pods to be bound")
    wait_until(lambda: all_others_were_refused(admin, names), "the refusal of the others")

    assert len(bound(admin)) == len(THEIRS) + ROOM
    counted = counted_by_hami(admin)
    assert sum(counted.values()) == sum(HELD.values()) + ROOM * ASK
    assert all(counted[card] <= TOTAL - MARGIN for card in CARDS), counted
    wait_until(lambda: held_by_us(vramline) == counted, "both to count the same")


def all_others_were_refused(admin: httpx.Client, names: list[str]) -> bool:
    waiting = set(names) - set(bound(admin))
    refused = {
        pod["metadata"]["name"]
        for pod in admin.get(PODS).json()["items"]
        for condition in pod["status"].get("conditions", [])
        if condition.get("reason") == "Unschedulable"
    }
    return waiting <= refused


def test_when_one_of_hamis_pods_has_ended_its_memory_goes_to_those_that_wait(
    admin: httpx.Client, vramline: VramlineProcess
) -> None:
    """9,000 MiB more on each of two cards, where 7,500 were left: room for two pods on each."""
    before = len(bound(admin))
    admin.delete(f"{PODS}/two-cards", params={"gracePeriodSeconds": 0}).raise_for_status()

    wait_until(lambda: len(bound(admin)) == before - 1 + TOO_MANY, "those that wait to be bound")
    wait_until(lambda: held_by_us(vramline) == counted_by_hami(admin), "both to count the same")
    assert all(held <= TOTAL - MARGIN for held in held_by_us(vramline).values())
