"""GPU pods on a real node: what webhook, scheduler and binding promise is what their containers see."""

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
from e2e.admission_world import create_namespace, install_tenant, pods_of
from e2e.test_whole import ACCOUNT, AGENT, REPORTS, install, reviews_are_answered
from realnode.machine import Programs
from realnode.node import RealNode, real_node
from realnode.pods import busybox_pod, is_running

NODE = "localhost"
CARDS = [f"GPU-{NODE}-0", f"GPU-{NODE}-1"]
TOTAL = 24_000
LEDGER = f"/apis/vramline.io/v1alpha1/gpuledgers/{NODE}"
SAY = "echo sees $NVIDIA_VISIBLE_DEVICES"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def plane(commands: Commands) -> Iterator[ControlPlane]:
    """With controllers: the rights of a tenant's role are put together by one of them."""
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
        install_tenant(plane, client, "team")
        yield client


@pytest.fixture(scope="module")
def vramline(plane: ControlPlane, node: RealNode, admin: httpx.Client) -> Iterator[VramlineProcess]:
    """The scheduler and its webhook, with two idle cards reported for the node."""
    port = free_port()
    install(plane, f"https://127.0.0.1:{port}/webhook")
    report_idle_cards(node)
    account = plane.issue_user("account", ACCOUNT, "system:serviceaccounts", "system:authenticated")
    options = ["--webhook-listen", f"127.0.0.1:{port}"]
    with run_scheduler(plane, kubeconfig=account, options=options) as process:
        wait_until(lambda: reviews_are_answered(admin), "the webhook", children=(process.child,))
        plane.start_scheduler(extender_configuration(process.port))
        yield process


@pytest.fixture(scope="module")
def worker(admin: httpx.Client, vramline: VramlineProcess) -> dict[str, Any]:
    """A running pod of the team that asked for a card, and for another's environment."""
    pod = busybox_pod("worker", SAY, annotations={"vramline.io/vram": str(TOTAL // 2)})
    pod["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    admin.post(pods_of("team"), json=pod).raise_for_status()
    running = wait_for_pod(admin, "team", "worker", is_running)
    vramline.child.check()
    return running


def report_idle_cards(node: RealNode) -> None:
    """Say what the agent of the node would: nobody uses its cards."""
    with node.plane.client() as agent:
        agent.headers.update(AGENT)
        agent.headers["Impersonate-Extra-authentication.kubernetes.io%2fnode-name"] = node.name
        wait_until(lambda: agent.get(REPORTS).is_success, "the kind GpuReport")
        report_cards(agent, node.name, [{"totalMiB": TOTAL, "usedMiB": 0, "processes": []} for _ in CARDS])


def card_of(pod: dict[str, Any]) -> str:
    card: str = pod["metadata"]["annotations"]["vramline.io/visible-devices"]
    assert card in CARDS
    return card


def restart(admin: httpx.Client, node: RealNode) -> dict[str, Any]:
    """Have the container of the worker end, and return the pod once it has another."""
    before = admin.get(f"{pods_of('team')}/worker").json()
    [old] = before["status"]["containerStatuses"]
    with contextlib.suppress(httpx.HTTPStatusError):  # the command ends with the container that it ends
        node.run("team", "worker", "kill", "1")
    return wait_for_pod(
        admin,
        "team",
        "worker",
        lambda pod: is_running(pod) and pod["status"]["containerStatuses"][0] != old,
    )


def container_of(pod: dict[str, Any]) -> tuple[str, int]:
    [status] = pod["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"]


def held_by(admin: httpx.Client, uid: str) -> list[str]:
    """The cards on which the ledger holds memory for a pod."""
    claims = admin.get(LEDGER).raise_for_status().json()["spec"].get("claims", {})
    return [card for card, held in claims.items() if any(claim["podUID"] == uid for claim in held)]


def test_a_container_sees_the_card_of_its_claim_and_no_other(
    admin: httpx.Client, node: RealNode, worker: dict[str, Any]
) -> None:
    assert worker["spec"]["nodeName"] == NODE
    assert node.words("team", "worker") == f"sees {card_of(worker)}\n"
    assert f"NVIDIA_VISIBLE_DEVICES={card_of(worker)}\n" in node.run("team", "worker", "env")
    assert held_by(admin, worker["metadata"]["uid"]) == [card_of(worker)]


def test_a_pod_keeps_container_card_and_claim_when_kubelet_is_killed(
    admin: httpx.Client, node: RealNode, worker: dict[str, Any]
) -> None:
    node.kill_kubelet()
    assert held_by(admin, worker["metadata"]["uid"]) == [card_of(worker)]
    node.start_kubelet()
    node.wait_until_ready()

    after = wait_for_pod(admin, "team", "worker", is_running)
    assert container_of(after) == container_of(worker)
    assert f"NVIDIA_VISIBLE_DEVICES={card_of(worker)}\n" in node.run("team", "worker", "env")
    assert held_by(admin, worker["metadata"]["uid"]) == [card_of(worker)]


def test_two_pods_that_do_not_fit_on_one_card_see_different_ones(
    admin: httpx.Client, node: RealNode, worker: dict[str, Any]
) -> None:
    pod = busybox_pod("large", SAY, annotations={"vramline.io/vram": str(TOTAL - 1_000)})
    admin.post(pods_of("team"), json=pod).raise_for_status()

    large = wait_for_pod(admin, "team", "large", is_running)

    assert {card_of(large), card_of(worker)} == set(CARDS)
    assert node.words("team", "large") == f"sees {card_of(large)}\n"


def test_a_container_that_starts_again_sees_the_same_card_whatever_its_tenant_writes(
    plane: ControlPlane, admin: httpx.Client, node: RealNode, worker: dict[str, Any]
) -> None:
    [other] = set(CARDS) - {card_of(worker)}
    with plane.client("team") as tenant:
        refused = annotate(tenant, "vramline.io/visible-devices", other)
        accepted = annotate(tenant, "example/own", "word")

    again = restart(admin, node)

    assert (refused.status_code, accepted.status_code) == (httpx.codes.FORBIDDEN, httpx.codes.OK)
    assert container_of(again)[1] == container_of(worker)[1] + 1
    assert node.words("team", "worker") == f"sees {card_of(worker)}\n"


def annotate(client: httpx.Client, key: str, value: str) -> httpx.Response:
    change = {"metadata": {"annotations": {key: value}}}
    return client.patch(f"{pods_of('team')}/worker", json=change, headers=MERGE)
