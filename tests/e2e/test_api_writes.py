"""What it costs the API server to place a pod, counted by the API server itself."""

from collections.abc import Iterator

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
    run_scheduler,
)
from e2e.audited import Writes

pytestmark = pytest.mark.audited

OURS = "vramline-under-test"
KUBE_SCHEDULER = "system:kube-scheduler"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        apply_crds(client)
        yield client


@pytest.fixture(scope="module")
def vramline(plane: ControlPlane, admin: httpx.Client) -> Iterator[VramlineProcess]:
    """The scheduler as a user of its own, so that its writes can be told from those of others."""
    add_gpu_node(admin, "n1", *[46_068] * 8)
    kubeconfig = plane.issue_user("vramline", OURS, "system:masters")
    with run_scheduler(plane, kubeconfig=kubeconfig) as process:
        plane.start_scheduler(extender_configuration(process.port))
        wait_until(
            lambda: process.client.get("/readyz").json().get("gpus", 0) > 0, "Vramline to know the cards"
        )
        with plane.client() as client:  # the first pod warms every cache; what is counted starts after it
            writes = Writes(plane)
            client.post(PODS, json=gpu_pod("warm", 100)).raise_for_status()
            wait_for_pod(client, "default", "warm", is_bound)
            # It may have been refused before it was bound; the last of its events says that it is.
            wait_until(
                lambda: "Scheduled" in reasons_of(client, "warm"), "the event that the first pod is bound"
            )
            told = len(reasons_of(client, "warm"))
            wait_until(
                lambda: writes.of(KUBE_SCHEDULER)["create events"] >= told, "its events in the audit log"
            )
        yield process


def reasons_of(client: httpx.Client, pod: str) -> list[str]:
    """The reasons of all events about a pod that kube-scheduler wrote."""
    query = {"fieldSelector": f"involvedObject.name={pod}"}
    answer = client.get("/api/v1/namespaces/default/events", params=query).raise_for_status().json()
    reporters = ("default-scheduler", "vramline")
    return [each["reason"] for each in answer["items"] if each["reportingComponent"] in reporters]


def is_bound(pod: dict[str, dict[str, object]]) -> bool:
    return "nodeName" in pod["spec"]


@pytest.mark.usefixtures("vramline")
def test_two_writes_for_a_pod_that_comes_alone(plane: ControlPlane, admin: httpx.Client) -> None:
    writes = Writes(plane)
    for number in range(3):
        admin.post(PODS, json=gpu_pod(f"alone-{number}", 8_000)).raise_for_status()
        wait_for_pod(admin, "default", f"alone-{number}", is_bound)

    # A pod is seen to be bound before the API server has noted the write down.
    wait_until(lambda: writes.of(OURS)["create pods/binding"] == 3, "the last write in the audit log")
    assert writes.of(OURS) == {"create pods/binding": 3, "update gpuledgers": 3}
    wait_until(lambda: writes.of(KUBE_SCHEDULER)["create events"] == 3, "kube-scheduler's own events")
    assert writes.of(KUBE_SCHEDULER)["patch pods/status"] == 0


@pytest.mark.usefixtures("vramline")
def test_pods_that_come_together_share_the_writes_of_the_ledger(
    plane: ControlPlane, admin: httpx.Client
) -> None:
    writes = Writes(plane)
    for number in range(24):
        admin.post(PODS, json=gpu_pod(f"burst-{number}", 8_000)).raise_for_status()
    for number in range(24):
        wait_for_pod(admin, "default", f"burst-{number}", is_bound)

    wait_until(lambda: writes.of(OURS)["create pods/binding"] == 24, "the last write in the audit log")
    counted = writes.of(OURS)
    assert counted.pop("create pods/binding") == 24
    assert counted.pop("update gpuledgers") < 24
    assert not counted


@pytest.mark.usefixtures("vramline")
def test_a_pod_that_fits_nowhere_costs_one_event_and_one_condition(
    plane: ControlPlane, admin: httpx.Client
) -> None:
    writes = Writes(plane)
    admin.post(PODS, json=gpu_pod("large", 90_000)).raise_for_status()
    wait_until(lambda: writes.of(KUBE_SCHEDULER)["patch pods/status"] == 1, "kube-scheduler's condition")
    wait_until(lambda: writes.of(OURS).total() == 2, "our event, and our condition once it has waited")

    assert writes.of(OURS) == {"create events": 1, "patch pods/status": 1}
