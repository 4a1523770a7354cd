"""The whole way beside NVIDIA's device plugin, on a real node: from a Deployment's pod to the card it sees.

Webhook, kube-scheduler, extender, claim, reservation pod, kubelet's device, its UUID, Binding, container.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from controlplane.commands import Commands
from controlplane.kubernetes import wait_for_pod
from controlplane.plane import ControlPlane, control_plane
from controlplane.processes import free_port, wait_until
from controlplane.vramline import VramlineProcess, extender_configuration, report_cards, run_scheduler
from e2e.admission_world import create_namespace, pods_of
from e2e.test_whole import ACCOUNT, AGENT, REPORTS, install, reviews_are_answered
from fakenvml import Card, FakeNvml
from realnode.gpu_plugin import RESOURCE, GpuPlugin, gpu_plugin
from realnode.image import IMAGE
from realnode.machine import Programs
from realnode.node import RealNode, real_node
from realnode.pods import busybox_pod, is_running
from realnode.reservations import run_reservations

NODE = "localhost"
CARDS = [f"GPU-{NODE}-0", f"GPU-{NODE}-1"]
REPLICAS = 4
TOTAL, HALF = 24_000, 11_000
IDLE = [Card(uuid, total=TOTAL) for uuid in CARDS]
RESERVATIONS = "vramline-reservations"
POLICY = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/vramline-only-reservations"
LEDGER = f"/apis/vramline.io/v1alpha1/gpuledgers/{NODE}"
SAY = "echo sees $NVIDIA_VISIBLE_DEVICES"


@pytest.fixture(scope="module")
def plane(commands: Commands) -> Iterator[ControlPlane]:
    with control_plane(commands, controllers=True) as running:
        yield running


@pytest.fixture(scope="module")
def node(plane: ControlPlane, programs: Programs) -> Iterator[RealNode]:
    with real_node(plane, programs, name=NODE) as running:
        yield running


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        create_namespace(client, "team")
        yield client


@pytest.fixture(scope="module")
def plugin(node: RealNode, admin: httpx.Client) -> Iterator[GpuPlugin]:
    """Each card is offered several times, as with time-slicing."""
    with gpu_plugin(node.kubelet_folder / "device-plugins", CARDS, replicas=REPLICAS) as running:
        wait_until(lambda: devices(admin) == len(CARDS) * REPLICAS, "the devices", seconds=60)
        yield running


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    """What reservation pods ask; as with NVIDIA's runtime they see the card that kubelet gave to them."""
    made = FakeNvml(tmp_path_factory.mktemp("nvml"))
    made.set(*IDLE, runtime=1)
    return made


@pytest.fixture(scope="module")
def vramline(
    plane: ControlPlane, admin: httpx.Client, node: RealNode, plugin: GpuPlugin, nvml: FakeNvml
) -> Iterator[VramlineProcess]:
    """The scheduler with its own rights, its webhook, and two idle cards reported for the node.

    Everything is installed, and the policies are in force: reservation pods are stored as they are made.
    """
    assert plugin.cards == CARDS
    port = free_port()
    install(plane, f"https://127.0.0.1:{port}/webhook")
    run_reservations(node, plane, nvml)
    report_idle_cards(plane)
    account = plane.issue_user("account", ACCOUNT, "system:serviceaccounts", "system:authenticated")
    options = ["--webhook-listen", f"127.0.0.1:{port}"]
    env = {"VRAMLINE_RESERVATION_IMAGE": IMAGE}
    with run_scheduler(plane, kubeconfig=account, options=options, env=env) as process:
        wait_until(lambda: reviews_are_answered(admin), "the webhook", children=(process.child,))
        plane.start_scheduler(extender_configuration(process.port))
        yield process


def devices(admin: httpx.Client) -> int:
    return int(admin.get(f"/api/v1/nodes/{NODE}").json()["status"]["allocatable"].get(RESOURCE, 0))


def report_idle_cards(plane: ControlPlane) -> None:
    """Say what the agent of the node would: nobody uses its cards, each of which is offered several times."""
    idle = {"totalMiB": TOTAL, "usedMiB": 0, "processes": [], "replicas": REPLICAS}
    with plane.client() as agent:
        agent.headers.update(AGENT)
        agent.headers["Impersonate-Extra-authentication.kubernetes.io%2fnode-name"] = NODE
        wait_until(lambda: agent.get(REPORTS).is_success, "the kind GpuReport")
        report_cards(agent, NODE, [dict(idle) for _ in CARDS])


def start_worker(admin: httpx.Client, vramline: VramlineProcess, name: str, mib: int) -> dict[str, Any]:
    """Start a pod that shares a card, and wants to see all of them; return it once it runs."""
    pod = busybox_pod(name, SAY, annotations={"gpu-memory": str(mib)})
    pod["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    admin.post(pods_of("team"), json=pod).raise_for_status()
    running = wait_for_pod(admin, "team", name, is_running)
    vramline.child.check()
    return running


def card_of(pod: dict[str, Any]) -> str:
    card: str = pod["metadata"]["annotations"]["vramline.io/visible-devices"]
    assert card in CARDS
    return card


def promised(admin: httpx.Client) -> dict[str, list[str]]:
    """Pods by card, as the ledger has them."""
    claims = admin.get(LEDGER).raise_for_status().json()["spec"].get("claims", {})
    return {card: sorted(each["pod"] for each in held) for card, held in claims.items() if held}


def reservations(admin: httpx.Client) -> list[dict[str, Any]]:
    """Reservation pods that are not being deleted."""
    found = admin.get(pods_of(RESERVATIONS)).raise_for_status().json()["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def reserved_cards(admin: httpx.Client) -> list[str]:
    """The cards that reservation pods hold, by their own word."""
    told = (pod["metadata"]["annotations"].get("vramline.io/reserved-gpu", "") for pod in reservations(admin))
    return sorted(card for card in told if card)


@pytest.fixture(scope="module")
def first(admin: httpx.Client, vramline: VramlineProcess) -> dict[str, Any]:
    return start_worker(admin, vramline, "first", HALF)


def test_a_shared_card_is_held_by_a_reservation_pod_and_seen_by_the_container(
    admin: httpx.Client, node: RealNode, first: dict[str, Any]
) -> None:
    assert promised(admin) == {card_of(first): ["team/first"]}
    assert card_of(first) in reserved_cards(admin)
    assert admin.get(POLICY).is_success
    assert RESOURCE not in first["spec"]["containers"][0]["resources"].get("limits", {})
    assert node.words("team", "first") == f"sees {card_of(first)}\n"
    seen = node.run("team", "first", "env")
    assert f"NVIDIA_VISIBLE_DEVICES={card_of(first)}\n" in seen
    assert "GPU_PORTION=0.46\n" in seen, "11,000 of 24,000 MiB, as KAI tells it"


def test_its_bind_request_says_that_it_is_done(admin: httpx.Client, first: dict[str, Any]) -> None:
    request = admin.get("/apis/vramline.io/v1alpha1/namespaces/team/bindrequests/first").json()

    assert request["status"]["phase"] == "Succeeded"
    assert request["metadata"]["ownerReferences"][0]["uid"] == first["metadata"]["uid"]


def test_a_container_that_starts_again_sees_the_same_card(
    admin: httpx.Client, node: RealNode, first: dict[str, Any]
) -> None:
    [before] = first["status"]["containerStatuses"]
    with contextlib.suppress(httpx.HTTPStatusError):  # the command ends with the container that it ends
        node.run("team", "first", "kill", "1")

    wait_for_pod(
        admin,
        "team",
        "first",
        lambda pod: (
            is_running(pod) and pod["status"]["containerStatuses"][0]["restartCount"] > before["restartCount"]
        ),
    )

    assert node.words("team", "first") == f"sees {card_of(first)}\n"


def test_a_second_pod_on_the_card_needs_no_second_reservation(
    admin: httpx.Client, node: RealNode, vramline: VramlineProcess, first: dict[str, Any]
) -> None:
    before = {pod["metadata"]["uid"] for pod in reservations(admin)}
    pin = {"nvidia.com/use-gpuuuid": card_of(first)}
    pod = busybox_pod("second", SAY, annotations={"gpu-memory": str(HALF), **pin})
    admin.post(pods_of("team"), json=pod).raise_for_status()

    second = wait_for_pod(admin, "team", "second", is_running)
    vramline.child.check()

    assert card_of(second) == card_of(first)
    assert node.words("team", "second") == f"sees {card_of(first)}\n"
    assert {each["metadata"]["uid"] for each in reservations(admin)} == before
    assert promised(admin)[card_of(first)] == ["team/first", "team/second"]


def test_a_pod_that_asks_for_plain_gpus_gets_none_from_kubelet_and_sees_the_card_it_was_told(
    admin: httpx.Client, node: RealNode, vramline: VramlineProcess
) -> None:
    pod = busybox_pod("plain", SAY)
    pod["spec"]["containers"][0]["resources"] = {"limits": {RESOURCE: "1"}}
    admin.post(pods_of("team"), json=pod).raise_for_status()

    plain = wait_for_pod(admin, "team", "plain", is_running)
    vramline.child.check()

    assert RESOURCE not in plain["spec"]["containers"][0]["resources"]["limits"]
    assert node.words("team", "plain") == f"sees {card_of(plain)}\n"
    assert card_of(plain) in reserved_cards(admin)
    assert "team/plain" in promised(admin)[card_of(plain)]


def test_the_reservation_goes_with_the_last_pod_on_its_card(
    plane: ControlPlane, admin: httpx.Client, vramline: VramlineProcess, first: dict[str, Any]
) -> None:
    for name in ("first", "second", "plain"):
        admin.delete(f"{pods_of('team')}/{name}").raise_for_status()
    wait_until(lambda: admin.get(pods_of("team")).json()["items"] == [], "the pods' end")
    report_idle_cards(plane)  # seen after they ended

    wait_until(lambda: promised(admin) == {}, "the claims' end", seconds=90, children=(vramline.child,))
    wait_until(lambda: reservations(admin) == [], f"the end of what held {card_of(first)}", seconds=90)


def test_a_driver_that_does_not_answer_is_what_the_waiting_pod_says(
    plane: ControlPlane, admin: httpx.Client, vramline: VramlineProcess, nvml: FakeNvml
) -> None:
    nvml.set(*IDLE, runtime=1, init=9)
    pod = busybox_pod("blocked", SAY, annotations={"gpu-memory": str(HALF)})
    admin.post(pods_of("team"), json=pod).raise_for_status()

    wait_until(lambda: "Driver Not Loaded" in told_about(admin, "blocked"), "the reason", seconds=90)
    nvml.set(*IDLE, runtime=1)

    def runs() -> bool:
        report_idle_cards(plane)
        return is_running(admin.get(f"{pods_of('team')}/blocked").json())

    wait_until(runs, "the pod to run once it is mended", seconds=120, children=(vramline.child,))


def told_about(admin: httpx.Client, pod: str) -> str:
    """What kube-scheduler and Vramline have said about a pod."""
    events = admin.get("/apis/events.k8s.io/v1/namespaces/team/events").raise_for_status().json()["items"]
    return "\n".join(each.get("note", "") for each in events if each["regarding"].get("name") == pod)
