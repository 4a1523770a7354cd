"""The agent as the chart ships it, a pod of a DaemonSet on a real node: its rights, and what it sees."""

import datetime as dt
import json
import ssl
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from controlplane.commands import Commands
from controlplane.kubernetes import wait_for_pod
from controlplane.plane import ControlPlane, control_plane
from controlplane.processes import free_port, wait_until
from controlplane.vramline import VramlineProcess, extender_configuration, run_scheduler
from e2e.admission_world import create_namespace, pods_of
from e2e.test_whole import ACCOUNT, REPORTS, install, reviews_are_answered
from fakenvml import Card, FakeNvml
from install.rendered import find_object, rendered
from realnode.agent import RUNTIME_CLASS, agent_for_real_node
from realnode.machine import Programs
from realnode.node import RealNode, real_node
from realnode.pods import busybox_pod, is_running

NODE = "localhost"
CARD = "GPU-real"
TOTAL, ASK = 24_000, 16_000
AGENT = "system:serviceaccount:vramline-agent:vramline-agent"
OWN_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 — where it is, not what
LEDGER = f"/apis/vramline.io/v1alpha1/gpuledgers/{NODE}"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def plane(commands: Commands) -> Iterator[ControlPlane]:
    with control_plane(commands, controllers=True, audited=True) as running:
        yield running


@pytest.fixture(scope="module")
def node(plane: ControlPlane, programs: Programs) -> Iterator[RealNode]:
    with real_node(plane, programs, name=NODE, labels={"nvidia.com/gpu.present": "true"}) as running:
        yield running


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    return FakeNvml(tmp_path_factory.mktemp("nvml"), Card(CARD, total=TOTAL))


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        create_namespace(client, "team")
        yield client


@pytest.fixture(scope="module")
def streams() -> int:
    """The port on which the scheduler expects the agent."""
    return free_port()


@pytest.fixture(scope="module")
def vramline(
    plane: ControlPlane, node: RealNode, admin: httpx.Client, streams: int
) -> Iterator[VramlineProcess]:
    """The scheduler with webhook and streams; kube-scheduler places other pods too, such as a DaemonSet's."""
    port = free_port()
    install(plane, f"https://127.0.0.1:{port}/webhook", "--with-agent")
    account = plane.issue_user("account", ACCOUNT, "system:serviceaccounts", "system:authenticated")
    options = ["--webhook-listen", f"127.0.0.1:{port}", "--agent-listen", f"127.0.0.1:{streams}"]
    with run_scheduler(plane, kubeconfig=account, options=options) as process:
        wait_until(lambda: reviews_are_answered(admin), "the webhook", children=(process.child,))
        configuration = extender_configuration(process.port)
        configuration["profiles"].append({"schedulerName": "default-scheduler"})
        plane.start_scheduler(configuration)
        node.wait_until_ready()
        yield process


@pytest.fixture(scope="module")
def agent(
    plane: ControlPlane, admin: httpx.Client, vramline: VramlineProcess, nvml: FakeNvml, streams: int
) -> dict[str, Any]:
    """The one pod of the DaemonSet, ready."""
    shipped = find_object(rendered("--with-agent"), "DaemonSet", "vramline-agent")
    admin.post("/apis/node.k8s.io/v1/runtimeclasses", json=RUNTIME_CLASS).raise_for_status()
    daemonset = agent_for_real_node(shipped, plane, nvml, streams=streams)
    admin.post("/apis/apps/v1/namespaces/vramline-agent/daemonsets", json=daemonset).raise_for_status()
    wait_until(lambda: len(ready_agents(admin)) == 1, "the agent", children=(vramline.child,))
    [pod] = ready_agents(admin)
    return pod


@pytest.fixture(scope="module")
def as_agent(plane: ControlPlane, node: RealNode, agent: dict[str, Any]) -> Iterator[httpx.Client]:
    """A client with the very token that kubelet has put into the agent's pod."""
    token = node.run("vramline-agent", agent["metadata"]["name"], "cat", OWN_TOKEN, container="agent")
    context = ssl.create_default_context(cafile=str(plane.folder / "ca.crt"))
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=plane.url, verify=context, headers=headers, timeout=30.0) as client:
        yield client


def ready_agents(admin: httpx.Client) -> list[dict[str, Any]]:
    pods = admin.get(pods_of("vramline-agent")).json()["items"]
    return [
        pod
        for pod in pods
        if all(each["ready"] for each in pod["status"].get("containerStatuses", [{"ready": 0}]))
    ]


def seen_card(admin: httpx.Client) -> dict[str, Any]:
    """The card as the newest report has it; empty before the first."""
    answer = admin.get(f"{REPORTS}/{NODE}")
    status = answer.json().get("status", {}) if answer.is_success else {}
    card: dict[str, Any] = next(iter(status.get("gpus", [])), {})
    return card


def seen_at(admin: httpx.Client) -> dt.datetime:
    return dt.datetime.fromisoformat(admin.get(f"{REPORTS}/{NODE}").json()["status"]["observedAt"])


def claims(admin: httpx.Client) -> list[str]:
    """The pods for which the ledger holds memory of the card."""
    spec = admin.get(LEDGER).raise_for_status().json()["spec"]
    return [each["pod"] for each in spec.get("claims", {}).get(CARD, [])]


def start_worker(admin: httpx.Client, name: str) -> None:
    pod = busybox_pod(name, annotations={"vramline.io/vram": str(ASK)})
    admin.post(pods_of("team"), json=pod).raise_for_status()


# ── its own word ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.usefixtures("agent")
def test_the_report_is_written_by_the_token_of_the_agents_own_pod(
    plane: ControlPlane, admin: httpx.Client
) -> None:
    wait_until(lambda: seen_card(admin).get("uuid") == CARD, "the report")

    assert plane.audit_log is not None
    whole = plane.audit_log.read_bytes().rpartition(b"\n")[0]  # the last line may be half written
    entries = map(json.loads, whole.splitlines())
    written = [each for each in entries if each["objectRef"].get("resource") == "gpureports"]
    assert {each["user"]["username"] for each in written} == {AGENT}
    extras = [each["user"]["extra"]["authentication.kubernetes.io/node-name"] for each in written]
    assert extras == [[NODE]] * len(written) != []


def test_its_token_is_no_good_for_the_report_of_another_node(as_agent: httpx.Client) -> None:
    report = {"apiVersion": "vramline.io/v1alpha1", "kind": "GpuReport", "metadata": {"name": "other"}}

    answer = as_agent.post(REPORTS, json=report)

    assert answer.status_code == httpx.codes.FORBIDDEN
    assert "written by the agent on that node alone" in answer.json()["message"]


def test_it_may_change_nothing_of_its_node(as_agent: httpx.Client) -> None:
    change = {"metadata": {"annotations": {"a": "b"}}}

    answer = as_agent.patch(f"/api/v1/nodes/{NODE}", json=change, headers=MERGE)

    assert answer.status_code == httpx.codes.FORBIDDEN


# ── what it sees of pods ─────────────────────────────────────────────────────────────────────────────
@pytest.mark.usefixtures("agent")
def test_memory_of_a_pod_that_ended_is_held_until_the_card_says_that_it_is_free(
    admin: httpx.Client, node: RealNode, nvml: FakeNvml
) -> None:
    wait_until(lambda: seen_card(admin).get("uuid") == CARD, "the report")
    start_worker(admin, "first")
    first = wait_for_pod(admin, "team", "first", is_running)
    uid, pid = first["metadata"]["uid"], node.processes_of(first["metadata"]["uid"])[-1]
    nvml.set(Card(CARD, total=TOTAL, used=ASK, processes={pid: ASK}))
    expected = [{"pid": pid, "usedMiB": ASK, "podUID": uid}]
    wait_until(lambda: seen_card(admin).get("processes") == expected, "the attribution")

    admin.delete(f"{pods_of('team')}/first").raise_for_status()
    wait_until(lambda: admin.get(f"{pods_of('team')}/first").status_code == 404, "the end of the pod")
    gone_at = dt.datetime.now(dt.UTC)
    assert node.processes_of(uid) == []
    start_worker(admin, "second")
    wait_for_pod(admin, "team", "second", lambda pod: "InsufficientVram" in why_it_waits(pod))
    wait_until(lambda: (seen_at(admin) - gone_at).total_seconds() > 3, "reports after the pod's end")
    assert claims(admin) == ["team/first"]
    assert "nodeName" not in admin.get(f"{pods_of('team')}/second").json()["spec"]

    nvml.set(Card(CARD, total=TOTAL, used=0))
    second = wait_for_pod(admin, "team", "second", is_running)
    assert second["metadata"]["annotations"]["vramline.io/visible-devices"] == CARD
    assert claims(admin) == ["team/second"]


def why_it_waits(pod: dict[str, Any]) -> str:
    conditions = pod["status"].get("conditions", [])
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")
