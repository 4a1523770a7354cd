"""A node that HAMi's device plugin still runs, on the real API server: what it finds, one pod at a time.

The test plays the plugin: it looks for its pod as HAMi's does, and says that it has handed out the devices.
"""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from controlplane.kubernetes import gpu_node
from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import VramlineProcess, apply_crds, run_scheduler
from e2e.extender_calls import bind, filter_nodes
from vramline.wire.hami import decode_devices

REGISTER = '[{"id":"GPU-h","count":10,"devmem":32600,"devcore":100,"type":"NVIDIA L40S","health":true}]'
PODS = "/api/v1/namespaces/default/pods"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        apply_crds(client)
        node = gpu_node("hami", allocatable={"nvidia.com/gpu": "10"})
        node["metadata"]["annotations"] = {"hami.io/node-nvidia-register": REGISTER}
        client.post("/api/v1/nodes", json=node).raise_for_status()
        yield client


@pytest.fixture(scope="module")
def vramline(plane: ControlPlane, admin: httpx.Client) -> Iterator[VramlineProcess]:
    admin.get("/version").raise_for_status()
    with run_scheduler(plane) as process:
        yield process


def create(admin: httpx.Client, vramline: VramlineProcess, name: str) -> dict[str, Any]:
    """Create a pod whose container gets a device from kubelet, and wait until the scheduler knows it."""
    asks = {"nvidia.com/gpu": "1"}
    container = {"name": "main", "image": "example", "resources": {"limits": asks, "requests": asks}}
    spec = {"schedulerName": "vramline", "containers": [container]}
    metadata = {"name": name, "annotations": {"vramline.io/vram": "8000"}}
    pod: dict[str, Any] = (
        admin.post(PODS, json={"metadata": metadata, "spec": spec}).raise_for_status().json()
    )
    wait_until(lambda: filter_nodes(vramline.client, pod, ["hami"]) == ["hami"], "the node to fit")
    return pod


def find_pods_of_plugin(admin: httpx.Client) -> list[str]:
    """Return the pods that HAMi's plugin may take for the one it is asked for, where no lock names one."""
    found = []
    for pod in admin.get(PODS, params={"fieldSelector": "spec.nodeName=hami"}).json()["items"]:
        told = pod["metadata"]["annotations"]
        if pod["status"]["phase"] != "Pending" or "hami.io/bind-time" not in told:
            continue
        if told.get("hami.io/bind-phase") in {"allocating", "success"}:
            assert told["hami.io/vgpu-node"] == "hami"
            found.append(pod["metadata"]["name"])
    return found


def test_the_plugin_finds_one_pod_and_its_devices_and_the_next_when_that_has_started(
    admin: httpx.Client, vramline: VramlineProcess
) -> None:
    first, second = create(admin, vramline, "first"), create(admin, vramline, "second")

    assert bind(vramline.client, first, "hami") == ""
    assert "has yet to hand out the devices of default/first" in bind(vramline.client, second, "hami")

    assert find_pods_of_plugin(admin) == ["first"]
    told = admin.get(f"{PODS}/first").json()["metadata"]["annotations"]
    ((device,),) = decode_devices(told["hami.io/vgpu-devices-to-allocate"], subject="Pod")
    assert (device.uuid, device.mib) == (told["vramline.io/visible-devices"], 8_000) == ("GPU-h", 8_000)
    assert told["hami.io/vgpu-devices-allocated"] == told["hami.io/vgpu-devices-to-allocate"]

    done = {"hami.io/bind-phase": "success", "hami.io/vgpu-devices-to-allocate": ";"}
    patch = {"metadata": {"annotations": done}}
    admin.patch(f"{PODS}/first", json=patch, headers=MERGE).raise_for_status()
    not_started = "may take default/first, which has not started"
    wait_until(lambda: not_started in bind(vramline.client, second, "hami"), "the hand-over to be seen")

    running = {"status": {"phase": "Running"}}
    admin.patch(f"{PODS}/first/status", json=running, headers=MERGE).raise_for_status()
    wait_until(lambda: bind(vramline.client, second, "hami") == "", "the second to be bound")
    assert find_pods_of_plugin(admin) == ["second"]


def test_a_lock_that_names_a_pod_which_is_gone_keeps_others_away_until_it_is_removed(
    admin: httpx.Client, vramline: VramlineProcess
) -> None:
    """HAMi's plugin asks for the pod that the lock names, and fails whoever it was asked for."""
    for pod in admin.get(PODS).json()["items"]:
        admin.delete(f"{PODS}/{pod['metadata']['name']}", params={"gracePeriodSeconds": 0}).raise_for_status()
    set_lock(admin, "2026-01-01T00:00:00Z,default,gone")
    third = create(admin, vramline, "third")

    locked = "HAMi's lock on hami (hami.io/mutex.lock) names default/gone"
    wait_until(lambda: locked in bind(vramline.client, third, "hami"), "the lock to be seen")

    set_lock(admin, None)
    wait_until(lambda: bind(vramline.client, third, "hami") == "", "the third to be bound")


def set_lock(admin: httpx.Client, lock: str | None) -> None:
    patch = {"metadata": {"annotations": {"hami.io/mutex.lock": lock}}}
    admin.patch("/api/v1/nodes/hami", json=patch, headers=MERGE).raise_for_status()
