"""Reservation pods on a real node: kubelet hands out a device, the pod says which card it is, and waits."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.commands import Commands
from controlplane.kubernetes import wait_for_pod
from controlplane.plane import ControlPlane, control_plane
from controlplane.processes import wait_until
from e2e.admission_world import pods_of
from e2e.test_whole import install
from fakenvml import Card, FakeNvml
from realnode.gpu_plugin import RESOURCE, GpuPlugin, gpu_plugin
from realnode.machine import Programs
from realnode.node import RealNode, real_node
from realnode.reservations import reservation_for_real_node
from vramline.wire.reservation_pod import (
    PlatformProfile,
    ReservationOptions,
    ReservationSite,
    build_reservation_pod,
)

NODE = "localhost"
CARDS = ["GPU-aaaa", "GPU-bbbb"]
NAMESPACE = "vramline-reservations"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def plane(commands: Commands) -> Iterator[ControlPlane]:
    with control_plane(commands, controllers=True) as running:
        yield running


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    """With everything that is installed; the pods here need folders of the machine instead of an image."""
    install(plane, "https://127.0.0.1:1/webhook")
    with plane.client() as client:
        labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
        client.patch(f"/api/v1/namespaces/{NAMESPACE}", json=labels, headers=MERGE).raise_for_status()
        yield client


@pytest.fixture(scope="module")
def node(plane: ControlPlane, programs: Programs) -> Iterator[RealNode]:
    with real_node(plane, programs, name=NODE) as running:
        yield running


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    """Both cards; as with NVIDIA's runtime a container sees those that its environment names."""
    made = FakeNvml(tmp_path_factory.mktemp("nvml"))
    made.set(*(Card(uuid) for uuid in CARDS), runtime=1)
    return made


@pytest.fixture(scope="module")
def plugin(node: RealNode, admin: httpx.Client) -> Iterator[GpuPlugin]:
    with gpu_plugin(node.kubelet_folder / "device-plugins", CARDS) as running:
        wait_until(lambda: devices(admin) == len(CARDS), "the devices", seconds=60)
        yield running


def devices(admin: httpx.Client) -> int:
    return int(admin.get(f"/api/v1/nodes/{NODE}").json()["status"]["allocatable"].get(RESOURCE, 0))


def reserve(
    admin: httpx.Client, plane: ControlPlane, nvml: FakeNvml, card: str, library: Path | None = None
) -> str:
    """Create the reservation pod of a card and return its name."""
    built = build_reservation_pod(
        ReservationSite(node=NODE, card=card), PlatformProfile(), ReservationOptions(image="example")
    )
    pod = reservation_for_real_node(built, plane, nvml, library=library)
    admin.post(pods_of(NAMESPACE), json=pod).raise_for_status()
    name: str = pod["metadata"]["name"]
    return name


def card_of(pod: dict[str, Any]) -> str:
    card: str = pod["metadata"].get("annotations", {}).get("vramline.io/reserved-gpu", "")
    return card


@pytest.fixture(scope="module")
def reserved(
    admin: httpx.Client, plane: ControlPlane, nvml: FakeNvml, plugin: GpuPlugin
) -> list[dict[str, Any]]:
    """A reservation pod for each card, once both have said which they hold."""
    assert set(plugin.cards) == set(CARDS)
    names = [reserve(admin, plane, nvml, card, nvml.library) for card in CARDS]
    return [wait_for_pod(admin, NAMESPACE, name, lambda pod: bool(card_of(pod))) for name in names]


def test_each_says_on_itself_which_card_kubelet_gave_to_it(
    reserved: list[dict[str, Any]], plugin: GpuPlugin
) -> None:
    assert {card_of(pod) for pod in reserved} == set(CARDS)
    assert {pod["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"] for pod in reserved} == set(CARDS)
    assert sorted(plugin.allocated) == CARDS


def test_its_log_has_the_lines_to_look_for(reserved: list[dict[str, Any]], node: RealNode) -> None:
    for pod in reserved:
        name, card = pod["metadata"]["name"], card_of(pod)
        lines = node.logs(NAMESPACE, name, "reserve").splitlines()
        assert [line.partition(" ")[2].partition(" library=")[0] for line in lines] == [
            f'"Looking for GPU device id for pod" namespace="{NAMESPACE}" pod="{name}"',
            '"Found 1 GPU devices"',
            f'"Found GPU device" deviceId="{card}"',
            f'"Pod was updated with GPU device UUID" deviceId="{card}"',
        ]


def test_it_waits_in_one_small_process(reserved: list[dict[str, Any]], node: RealNode) -> None:
    for pod in reserved:
        uid = pod["metadata"]["uid"]
        wait_until(lambda uid=uid: all(is_small(pid) for pid in node.memory_of(uid).values()), "the shell")  # type: ignore[misc]
        assert len(node.memory_of(uid)) == 2, "the pause container, and one process that waits"


def is_small(kib: int) -> bool:
    return kib < 4_000


def test_no_device_is_left_for_anybody_else(
    admin: httpx.Client, plane: ControlPlane, nvml: FakeNvml, reserved: list[dict[str, Any]]
) -> None:
    assert len(reserved) == len(CARDS)
    name = reserve(admin, plane, nvml, "GPU-third", nvml.library)

    rejected = wait_for_pod(admin, NAMESPACE, name, lambda pod: pod["status"].get("phase") == "Failed")

    assert rejected["status"]["reason"] in {"UnexpectedAdmissionError", "OutOfnvidia.com/gpu"}
    assert card_of(rejected) == ""


def test_a_container_that_starts_again_says_the_same(
    admin: httpx.Client, node: RealNode, reserved: list[dict[str, Any]]
) -> None:
    name, card = reserved[0]["metadata"]["name"], card_of(reserved[0])
    node.end_container(NAMESPACE, name, "reserve")

    again = wait_for_pod(
        admin, NAMESPACE, name, lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1
    )
    wait_until(lambda: "Pod was updated" in node.logs(NAMESPACE, name, "reserve"), "its word", seconds=60)

    assert card_of(again) == card


def test_a_deleted_one_gives_its_device_back_at_once(
    admin: httpx.Client, plane: ControlPlane, nvml: FakeNvml, reserved: list[dict[str, Any]]
) -> None:
    gone = reserved[1]
    admin.delete(f"{pods_of(NAMESPACE)}/{gone['metadata']['name']}").raise_for_status()
    wait_until(lambda: not exists(admin, gone["metadata"]["name"]), "the end of the pod", seconds=60)

    name = reserve(admin, plane, nvml, "GPU-next", nvml.library)

    assert card_of(wait_for_pod(admin, NAMESPACE, name, lambda pod: bool(card_of(pod)))) == card_of(gone)


def exists(admin: httpx.Client, name: str) -> bool:
    return admin.get(f"{pods_of(NAMESPACE)}/{name}").is_success
