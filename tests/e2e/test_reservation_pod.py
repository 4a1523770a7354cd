"""Reservation pods on a real node: kubelet hands out a device, the pod says which card it is, and waits."""

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
from fakenvml import Card, FakeNvml, install_with_dependency
from realnode.gpu_plugin import RESOURCE, GpuPlugin, gpu_plugin
from realnode.machine import Programs
from realnode.node import RealNode, real_node
from realnode.pods import is_running
from realnode.reservations import reservation_for_real_node
from vramline.settings.platforms import as_platforms, profile_for
from vramline.wire.platform_profile import PlatformProfile
from vramline.wire.reservation_pod import ReservationOptions, ReservationSite, build_reservation_pod

NODE = "localhost"
CARDS = ["GPU-aaaa", "GPU-bbbb"]
NAMESPACE = "vramline-reservations"
TEGRA_FOLDER = "/usr/lib/aarch64-linux-gnu/nvidia"
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


@dataclass(frozen=True)
class Maker:
    """Makes reservation pods on the node."""

    admin: httpx.Client
    plane: ControlPlane
    nvml: FakeNvml

    def create(self, card: str, profile: PlatformProfile | None = None, library: Path | None = None) -> str:
        """Create the reservation pod of a card and return its name; without `library` it has to be found."""
        site, options = ReservationSite(node=NODE, card=card), ReservationOptions(image="example")
        built = build_reservation_pod(site, profile or PlatformProfile(), options)
        pod = reservation_for_real_node(built, self.plane, self.nvml, library=library)
        self.admin.post(pods_of(NAMESPACE), json=pod).raise_for_status()
        name: str = pod["metadata"]["name"]
        return name

    def wait_for(self, name: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        return wait_for_pod(self.admin, NAMESPACE, name, is_so)

    def remove(self, name: str) -> None:
        """Delete a pod, and wait until kubelet has its device back."""
        self.admin.delete(f"{pods_of(NAMESPACE)}/{name}").raise_for_status()
        wait_until(lambda: not self.exists(name), "the end of the pod", seconds=60)

    def exists(self, name: str) -> bool:
        return self.admin.get(f"{pods_of(NAMESPACE)}/{name}").is_success


def has_said(pod: dict[str, Any]) -> bool:
    """Whether it has said which card it holds, and kubelet has noticed that it runs."""
    return bool(card_of(pod)) and is_running(pod)


@pytest.fixture(scope="module")
def maker(admin: httpx.Client, plane: ControlPlane, nvml: FakeNvml, plugin: GpuPlugin) -> Maker:
    assert plugin.cards == CARDS
    return Maker(admin, plane, nvml)


def card_of(pod: dict[str, Any]) -> str:
    card: str = pod["metadata"].get("annotations", {}).get("vramline.io/reserved-gpu", "")
    return card


# ── boards ───────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a Jetson in which NVML is, with a library beside it that it needs; no linker knows it."""
    folder = tmp_path_factory.mktemp("board") / "nvidia"
    install_with_dependency(folder)
    return folder


def tegra(folder: Path, **more: Any) -> PlatformProfile:
    """The profile as the default has it, with a stand-in for the host's folder.

    Where this machine is no ARM, its finder does not look in ARM's folders, and is told.
    """
    named = {} if platform.machine() == "aarch64" else {"VRAMLINE_NVML_LIBRARY": TEGRA_FOLDER}
    said = {
        "libraries": [f"{folder}:{TEGRA_FOLDER}"],
        "environment": {"NVIDIA_DRIVER_CAPABILITIES": "utility", **named},
        **more,
    }
    return profile_for("tegra", as_platforms({"tegra": said}))


def last_words(pod: dict[str, Any]) -> str:
    """What the container said before it ended, as kubelet tells it."""
    [status] = pod["status"].get("containerStatuses") or [{}]
    ended = status.get("state", {}).get("terminated") or status.get("lastState", {}).get("terminated") or {}
    words: str = ended.get("message", "")
    return words


def test_on_a_board_the_library_is_found_in_the_folder_that_the_profile_mounts(
    maker: Maker, board: Path, node: RealNode
) -> None:
    name = maker.create("GPU-board", tegra(board))

    pod = maker.wait_for(name, has_said)

    assert card_of(pod) in CARDS
    assert f'library="{TEGRA_FOLDER}/libnvidia-ml.so.1' in node.logs(NAMESPACE, name, "reserve")
    maker.remove(name)


@pytest.mark.parametrize(
    ("hacks", "words"),
    [
        ([], "unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND"),
        (["library"], "unable to initialize NVML: NVML_ERROR_DRIVER_NOT_LOADED (Driver Not Loaded)"),
    ],
    ids=["neither library nor device nodes", "no device nodes"],
)
def test_without_what_a_board_needs_the_end_of_the_pod_says_what_is_missing(
    maker: Maker, board: Path, hacks: list[str], words: str
) -> None:
    maker.nvml.set(*(Card(uuid) for uuid in CARDS), runtime=1, needs="/dev/nvidiactl")
    name = maker.create("GPU-board", tegra(board) if hacks else PlatformProfile())

    pod = maker.wait_for(name, lambda pod: bool(last_words(pod)))

    assert f"error: {words}" in last_words(pod)
    assert card_of(pod) == ""
    maker.remove(name)
    maker.nvml.set(*(Card(uuid) for uuid in CARDS), runtime=1)


# ── any node ─────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def reserved(maker: Maker) -> list[dict[str, Any]]:
    """A reservation pod for each card, once both have said which they hold."""
    names = [maker.create(card, library=maker.nvml.library) for card in CARDS]
    return [maker.wait_for(name, has_said) for name in names]


def test_each_says_on_itself_which_card_kubelet_gave_to_it(
    reserved: list[dict[str, Any]], plugin: GpuPlugin
) -> None:
    assert {card_of(pod) for pod in reserved} == set(CARDS)
    assert {pod["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"] for pod in reserved} == set(CARDS)
    assert sorted(plugin.allocated[-2:]) == CARDS


def whole_log(node: RealNode, name: str) -> str:
    """What a reservation pod wrote, its last line included: it tells the API server before its log."""
    wait_until(lambda: "Pod was updated" in node.logs(NAMESPACE, name, "reserve"), "its word", seconds=60)
    return node.logs(NAMESPACE, name, "reserve")


def test_its_log_has_the_lines_to_look_for(reserved: list[dict[str, Any]], node: RealNode) -> None:
    for pod in reserved:
        name, card = pod["metadata"]["name"], card_of(pod)
        lines = whole_log(node, name).splitlines()
        assert [line.partition(" ")[2].partition(" library=")[0] for line in lines] == [
            f'"Looking for GPU device id for pod" namespace="{NAMESPACE}" pod="{name}"',
            '"Found 1 GPU devices"',
            f'"Found GPU device" deviceId="{card}"',
            f'"Pod was updated with GPU device UUID" deviceId="{card}"',
        ]


def test_it_waits_in_one_small_process(reserved: list[dict[str, Any]], node: RealNode) -> None:
    for pod in reserved:
        uid = pod["metadata"]["uid"]
        wait_until(lambda uid=uid: max(node.memory_of(uid).values()) < 4_000, "the shell")  # type: ignore[misc]
        assert len(node.memory_of(uid)) == 2, "the pause container, and one process that waits"


def test_no_device_is_left_for_anybody_else(maker: Maker, reserved: list[dict[str, Any]]) -> None:
    assert len(reserved) == len(CARDS)
    name = maker.create("GPU-third", library=maker.nvml.library)

    rejected = maker.wait_for(name, lambda pod: pod["status"].get("phase") == "Failed")

    assert rejected["status"]["reason"] in {"UnexpectedAdmissionError", "OutOfnvidia.com/gpu"}
    assert card_of(rejected) == ""


def test_a_container_that_starts_again_says_the_same(
    maker: Maker, node: RealNode, reserved: list[dict[str, Any]]
) -> None:
    name, card = reserved[0]["metadata"]["name"], card_of(reserved[0])
    node.end_container(NAMESPACE, name, "reserve")

    maker.wait_for(name, lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1)
    whole_log(node, name)

    assert card_of(maker.wait_for(name, has_said)) == card


def test_a_deleted_one_gives_its_device_back_at_once(maker: Maker, reserved: list[dict[str, Any]]) -> None:
    maker.remove(reserved[1]["metadata"]["name"])

    name = maker.create("GPU-next", library=maker.nvml.library)

    assert card_of(maker.wait_for(name, has_said)) == card_of(reserved[1])
