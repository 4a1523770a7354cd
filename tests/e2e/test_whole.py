"""A Deployment as a user writes it, through webhook, kube-scheduler, extender and binding."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.commands import Commands
from controlplane.kubernetes import gpu_node
from controlplane.plane import ControlPlane, control_plane
from controlplane.processes import free_port, wait_until
from controlplane.vramline import VramlineProcess, extender_configuration, report_cards, run_scheduler
from e2e.admission_world import create_namespace, pods_of
from install.rendered import find_object, rendered

CARD = "GPU-sliced-0"
REPORTS = "/apis/vramline.io/v1alpha1/gpureports"
ACCOUNT = "system:serviceaccount:vramline-system:vramline-scheduler"
AGENT = {
    "Impersonate-User": "system:serviceaccount:vramline-agent:vramline-agent",
    "Impersonate-Group": "system:masters",
    "Impersonate-Extra-authentication.kubernetes.io%2fnode-name": "sliced",
}
DEPLOYMENT: dict[str, Any] = {
    "metadata": {"name": "llm"},
    "spec": {
        "replicas": 5,
        "selector": {"matchLabels": {"app": "llm"}},
        "template": {
            "metadata": {"labels": {"app": "llm"}, "annotations": {"gpu-memory": "8000"}},
            "spec": {"containers": [{"name": "main", "image": "example"}]},
        },
    },
}


@pytest.fixture(scope="module")
def plane(commands: Commands) -> Iterator[ControlPlane]:
    with control_plane(commands, controllers=True) as running:
        yield running


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        create_namespace(client, "team")
        yield client


@pytest.fixture(scope="module")
def vramline(plane: ControlPlane, admin: httpx.Client) -> Iterator[VramlineProcess]:
    """The scheduler with its webhook, called by the API server and by kube-scheduler."""
    port = free_port()
    install(plane, f"https://127.0.0.1:{port}/webhook")
    admin.post(
        "/api/v1/nodes", json=gpu_node("sliced", allocatable={"nvidia.com/gpu": "100"})
    ).raise_for_status()
    # A new node is tainted until its kubelet is ready; nobody here would take the taint away.
    ready = [{"op": "remove", "path": "/spec/taints"}]
    headers = {"Content-Type": "application/json-patch+json"}
    admin.patch("/api/v1/nodes/sliced", json=ready, headers=headers).raise_for_status()
    with plane.client() as agent:
        agent.headers.update(AGENT)
        wait_until(lambda: agent.get(REPORTS).is_success, "the kind GpuReport")
        report_cards(agent, "sliced", [{"totalMiB": 32_600, "usedMiB": 0, "processes": []}])
    account = plane.issue_user("account", ACCOUNT, "system:serviceaccounts", "system:authenticated")
    options = ["--webhook-listen", f"127.0.0.1:{port}"]
    with run_scheduler(plane, kubeconfig=account, options=options) as process:
        wait_until(lambda: reviews_are_answered(admin), "the webhook", children=(process.child,))
        plane.start_scheduler(extender_configuration(process.port))
        yield process


@pytest.fixture(scope="module")
def deployed(admin: httpx.Client, vramline: VramlineProcess) -> list[dict[str, Any]]:
    """The pods of the Deployment once kube-scheduler has had its say about each."""
    admin.post("/apis/apps/v1/namespaces/team/deployments", json=DEPLOYMENT).raise_for_status()
    wait_until(
        lambda: len(bound(admin)) == 4 and len(waiting(admin)) == 1,
        "four bound, and one waiting",
        seconds=60.0,
        children=(vramline.child,),
    )
    return pods(admin)


def install(plane: ControlPlane, url: str, *options: str) -> None:
    """Apply everything that `vramline install` prints, but for its pods; the webhook has an address."""
    objects = [each for each in rendered(*options) if each["kind"] not in {"Deployment", "DaemonSet"}]
    for webhook in find_object(objects, "MutatingWebhookConfiguration", "vramline")["webhooks"]:
        webhook["clientConfig"] = {"url": url}
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    run(plane.commands["kubectl"], f"--kubeconfig={kubeconfig_of(plane)}", "apply", "-f", "-", stdin=listed)


def reviews_are_answered(admin: httpx.Client) -> bool:
    asking = {
        "metadata": {"name": "probe", "annotations": {"gpu-memory": "1"}},
        "spec": {"containers": [{"name": "main", "image": "example"}]},
    }
    answer = admin.post(pods_of("team"), params={"dryRun": "All"}, json=asking)
    return answer.is_success and bool(answer.json()["spec"]["schedulerName"] == "vramline")


def pods(admin: httpx.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = admin.get(pods_of("team"), params={"labelSelector": "app=llm"}).json()[
        "items"
    ]
    return found


def bound(admin: httpx.Client) -> list[dict[str, Any]]:
    return [pod for pod in pods(admin) if pod["spec"].get("nodeName")]


def waiting(admin: httpx.Client) -> list[dict[str, Any]]:
    return [pod for pod in pods(admin) if _condition(pod).get("status") == "False"]


def _condition(pod: dict[str, Any]) -> dict[str, Any]:
    conditions = pod["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == "PodScheduled"), {})


def kubeconfig_of(plane: ControlPlane) -> Path:
    return plane.folder / "admin.kubeconfig"


def run(*command: str, stdin: str | None = None) -> str:
    answer = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_four_pods_share_the_card_and_see_it_alone(deployed: list[dict[str, Any]]) -> None:
    placed = [pod for pod in deployed if pod["spec"].get("nodeName")]

    assert len(placed) == 4
    for pod in placed:
        annotations = pod["metadata"]["annotations"]
        [share] = json.loads(annotations["vramline.io/allocation"])["gpus"]
        assert (share["uuid"], share["mib"]) == (CARD, 8_000)
        assert annotations["vramline.io/visible-devices"] == CARD
        [visible] = [
            each for each in pod["spec"]["containers"][0]["env"] if each["name"] == "NVIDIA_VISIBLE_DEVICES"
        ]
        field = visible["valueFrom"]["fieldRef"]["fieldPath"]
        assert field == "metadata.annotations['vramline.io/visible-devices']"


def test_the_fifth_is_told_why_by_kubectl_describe(
    plane: ControlPlane, deployed: list[dict[str, Any]]
) -> None:
    [pending] = [pod for pod in deployed if not pod["spec"].get("nodeName")]
    kubectl = [plane.commands["kubectl"], f"--kubeconfig={kubeconfig_of(plane)}"]
    describe = [*kubectl, "-n", "team", "describe", "pod", pending["metadata"]["name"]]

    for sentence in (
        "1 InsufficientVram: not enough VRAM is free",
        f"1 InsufficientVram (closest sliced/{CARD}, short by 7,500 MiB)",
    ):
        wait_until(lambda wanted=sentence: wanted in run(*describe), sentence)  # type: ignore[misc]


def test_a_pod_that_waits_gets_one_event_and_a_bound_one_none(
    admin: httpx.Client, deployed: list[dict[str, Any]]
) -> None:
    [pending] = [pod for pod in deployed if not pod["spec"].get("nodeName")]
    wait_until(lambda: len(own_events(admin, pending["metadata"]["name"])) > 0, "our event")

    counts = {pod["metadata"]["name"]: len(own_events(admin, pod["metadata"]["name"])) for pod in deployed}

    assert sorted(counts.values()) == [0, 0, 0, 0, 1]
    assert counts[pending["metadata"]["name"]] == 1


def test_a_pod_that_waits_carries_the_reason_with_its_figures(
    admin: httpx.Client, deployed: list[dict[str, Any]]
) -> None:
    [pending] = [pod for pod in deployed if not pod["spec"].get("nodeName")]
    path = f"/api/v1/namespaces/team/pods/{pending['metadata']['name']}"

    def told() -> dict[str, Any]:
        conditions = admin.get(path).json()["status"].get("conditions", [])
        return next((each for each in conditions if each["type"] == "vramline.io/Placed"), {})

    wait_until(lambda: bool(told()), "the condition")
    assert (told()["status"], told()["reason"]) == ("False", "InsufficientVram")
    assert f"closest sliced/{CARD}, short by 7,500 MiB" in told()["message"]


def own_events(admin: httpx.Client, pod: str) -> list[dict[str, Any]]:
    items = admin.get("/apis/events.k8s.io/v1/namespaces/team/events").json()["items"]
    return [
        each
        for each in items
        if each["regarding"]["name"] == pod and each["reportingController"] == "vramline.io/scheduler"
    ]


def vramline_command(plane: ControlPlane, *arguments: str) -> str:
    return run(sys.executable, "-m", "vramline", *arguments, f"--kubeconfig={kubeconfig_of(plane)}")


@pytest.mark.parametrize("what", ["gpus", "nodes"])
@pytest.mark.usefixtures("deployed")
def test_a_kubeconfig_shows_what_the_scheduler_shows(
    what: str, plane: ControlPlane, vramline: VramlineProcess
) -> None:
    told = vramline.client.get(f"/api/v1/{what}").json()[what]

    read = json.loads(vramline_command(plane, what, "-o", "json"))[what]

    for each in (*told, *read):
        each.pop("observed_age_s", None)
        each["claims"] = sorted(each.get("claims", []), key=lambda claim: str(claim["pod"]))
    assert read == told
    assert (read[0]["held_mib"], read[0]["free_mib"]) == (32_000, 500)


def test_a_kubeconfig_explains_a_pod_that_waits(plane: ControlPlane, deployed: list[dict[str, Any]]) -> None:
    [pending] = [pod for pod in deployed if not pod["spec"].get("nodeName")]

    shown = vramline_command(plane, "explain", pending["metadata"]["name"])

    assert "Pending" in shown
    assert "8,000" in shown
    assert f"InsufficientVram (closest sliced/{CARD}, short by 7,500 MiB)" in shown


def test_a_kubeconfig_explains_a_pod_that_is_bound(
    plane: ControlPlane, deployed: list[dict[str, Any]]
) -> None:
    placed = next(pod for pod in deployed if pod["spec"].get("nodeName"))

    shown = vramline_command(plane, "explain", f"team/{placed['metadata']['name']}")

    assert "on sliced" in shown
    assert "its GPUs now" in shown


@pytest.mark.usefixtures("deployed")
def test_doctor_finds_nothing_wrong_but_the_lease_that_nobody_needs_here(plane: ControlPlane) -> None:
    """kube-scheduler runs alone here, without a Lease."""
    command = [sys.executable, "-m", "vramline", "doctor", "-o", "json"]
    answer = subprocess.run(
        [*command, f"--kubeconfig={kubeconfig_of(plane)}"], capture_output=True, text=True, check=False
    )

    problems = [each for each in json.loads(answer.stdout)["findings"] if each["level"] == "problem"]
    assert [each["message"].split(":")[0] for each in problems] == ["no kube-scheduler has ever led"]


def test_the_scheduler_ends_when_it_is_told_to(plane: ControlPlane, vramline: VramlineProcess) -> None:
    """Last: the webhook closes its socket, the Lease is handed back, and no task is left behind."""
    vramline.child.signal(signal.SIGTERM)

    wait_until(vramline.child.has_ended, "the end")
    with plane.client() as client:
        lease = client.get(
            "/apis/coordination.k8s.io/v1/namespaces/vramline-system/leases/vramline-scheduler"
        ).json()
    assert not lease["spec"].get("holderIdentity")
    assert "scheduler.stopped" in vramline.child.log.read_text()
    assert "Traceback" not in vramline.child.log.read_text()
