"""Nominate ahead, against a real kube-scheduler: many nodes, many pods that wait, a third write for each."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from controlplane.commands import Commands
from controlplane.plane import ControlPlane, control_plane
from controlplane.processes import wait_until
from controlplane.throughput.populate import add_nodes, add_pods
from controlplane.vramline import (
    VramlineProcess,
    apply_crds,
    extender_configuration,
    gpu_pod,
    run_scheduler,
)
from e2e.audited import Writes
from vramline.explain.pods import say_hint

OURS = "vramline-under-test"
NODES = 1_000
"""From so many on it pays."""
PODS = "/api/v1/namespaces/{}/pods"
WAITING, HEAD = 40, 8


@pytest.fixture(scope="module")
def plane(commands: Commands) -> Iterator[ControlPlane]:
    with control_plane(commands, audited=True) as running:
        running.issue_user("vramline", OURS, "system:masters")
        yield running


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        apply_crds(client)
        add_nodes(plane.folder / "admin.kubeconfig", NODES)
        yield client


@contextmanager
def kube_scheduler(plane: ControlPlane, port: int) -> Iterator[None]:
    """Run one that asks Vramline on this port.

    One that stayed, with nobody to ask, would write on the pods of the next test that it cannot place them.
    """
    scheduler = plane.start_scheduler(extender_configuration(port))
    yield
    scheduler.stop()
    plane.children.remove(scheduler)


def namespace(admin: httpx.Client, name: str) -> str:
    admin.post("/api/v1/namespaces", json={"metadata": {"name": name}}).raise_for_status()
    return name


def nominations(admin: httpx.Client, name: str) -> dict[str, str]:
    """Return the nominated node of each pod that has one."""
    pods = admin.get(PODS.format(name)).json()["items"]
    told = {pod["metadata"]["name"]: pod["status"].get("nominatedNodeName", "") for pod in pods}
    return {pod: node for pod, node in told.items() if node}


def hints_told(process: VramlineProcess, name: str, pods: Iterable[str]) -> dict[str, str]:
    """Return what Vramline says of the hint to each pod; empty: there was none."""
    return {pod: process.client.get(f"/api/v1/pods/{name}/{pod}").json()["hint"] for pod in pods}


def nodes_of(admin: httpx.Client, name: str) -> dict[str, str]:
    pods = admin.get(PODS.format(name)).json()["items"]
    bound = {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods}
    return {pod: node for pod, node in bound.items() if node}


def test_pods_that_wait_go_where_they_were_nominated_for_one_write_more(
    plane: ControlPlane, admin: httpx.Client
) -> None:
    ours, others = namespace(admin, "ours"), namespace(admin, "others")
    kubeconfig = plane.folder / "admin.kubeconfig"
    add_pods(kubeconfig, others, WAITING, scheduler="somebody-else")
    # All of them before anybody looks: a rest of a few pods that comes later would get no hints.
    add_pods(kubeconfig, ours, WAITING, scheduler="vramline")
    writes = Writes(plane)
    # Each on a node of its own, with room for more: where kube-scheduler puts a pod that was left alone is
    # its own choice, and on nodes that are packed it may take the room of one that was told.
    env = {"VRAMLINE_POLICY": "spread"}
    with run_scheduler(plane, kubeconfig=plane.folder / "vramline.kubeconfig", env=env) as process:
        wait_until(lambda: len(nominations(admin, ours)) == WAITING - HEAD, "the nominations")
        told = nominations(admin, ours)
        before = hints_told(process, ours, told)

        with kube_scheduler(plane, process.port):
            wait_until(lambda: len(nodes_of(admin, ours)) == WAITING, "all pods on nodes")
        metrics = process.client.get("/metrics").text
        bound = nodes_of(admin, ours)
        after = hints_told(process, ours, bound)

    assert before == {pod: say_hint(node, None) for pod, node in told.items()}
    assert len({*told.values()}) == WAITING - HEAD
    assert {pod: bound[pod] for pod in told} == told
    assert {pod: after[pod] for pod in told} == {pod: say_hint(node, node) for pod, node in told.items()}
    counted = writes.of(OURS)
    ledgers = counted.pop("update gpuledgers", 0) + counted.pop("create gpuledgers", 0)
    # Those left alone may be told after all, while kube-scheduler waits at the first pod that was not.
    hints = sum(map(bool, after.values()))
    assert WAITING - HEAD <= hints < WAITING
    assert counted == {"create pods/binding": WAITING, "patch pods/status": hints}
    assert 0 < ledgers <= WAITING
    assert nominations(admin, others) == {}
    assert f'vramline_nominations_total{{result="written"}} {hints}.0' in metrics


def test_where_it_is_switched_off_nobody_is_nominated(plane: ControlPlane, admin: httpx.Client) -> None:
    quiet = namespace(admin, "quiet")
    env = {"VRAMLINE_NOMINATE_AHEAD": "off"}
    with run_scheduler(
        plane, name="quiet", kubeconfig=plane.folder / "vramline.kubeconfig", env=env
    ) as process:
        wait_until(lambda: process.client.get("/readyz").is_success, "Vramline to know all nodes")
        writes = Writes(plane)
        add_pods(plane.folder / "admin.kubeconfig", quiet, WAITING, scheduler="vramline")
        with kube_scheduler(plane, process.port):
            wait_until(lambda: len(nodes_of(admin, quiet)) == WAITING, "all pods on nodes")

    assert writes.of(OURS)["patch pods/status"] == 0
    assert writes.of(OURS)["create pods/binding"] == WAITING


def test_a_pod_that_comes_alone_is_not_nominated(plane: ControlPlane, admin: httpx.Client) -> None:
    alone = namespace(admin, "alone")
    with run_scheduler(plane, name="alone", kubeconfig=plane.folder / "vramline.kubeconfig") as process:
        wait_until(lambda: process.client.get("/readyz").is_success, "Vramline to know all nodes")
        writes = Writes(plane)
        with kube_scheduler(plane, process.port):
            admin.post(PODS.format(alone), json=gpu_pod("one", 8_000)).raise_for_status()
            wait_until(lambda: "one" in nodes_of(admin, alone), "the pod on a node")

    assert writes.of(OURS)["patch pods/status"] == 0
