"""`vramline doctor` against a real API server: a sound installation, and everything broken in turn."""

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from controlplane.kubernetes import gpu_node
from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import add_gpu_node, run_scheduler
from install.rendered import rendered
from vramline.cli.main import main

GROUP = "/apis/vramline.io/v1alpha1"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CONFIGURATION = f"{REGISTRATION}/mutatingwebhookconfigurations/vramline"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/vramline-system/leases"
MERGE = {"Content-Type": "application/merge-patch+json"}
POLICED = {"ValidatingAdmissionPolicyBinding"}
"""Left out at first: administrators break things here that the policies would keep whole."""


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    left_out = {"Deployment", *POLICED}
    objects = [each for each in rendered() if each["kind"] not in left_out]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    kubectl = [plane.commands["kubectl"], f"--kubeconfig={plane.folder / 'admin.kubeconfig'}"]
    subprocess.run([*kubectl, "apply", "-f", "-"], input=listed, check=True, capture_output=True, text=True)
    with plane.client() as client:
        wait_until(lambda: client.get(f"{GROUP}/gpureports").is_success, "the kind GpuReport")
        yield client


@pytest.fixture
def told(
    plane: ControlPlane, admin: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> Callable[[], list[dict[str, Any]]]:
    """What doctor finds, and that its exit status agrees."""
    admin.get("/version").raise_for_status()

    def look() -> list[dict[str, Any]]:
        capsys.readouterr()
        status = main(["doctor", "-o", "json", f"--kubeconfig={plane.folder / 'admin.kubeconfig'}"])
        report = json.loads(capsys.readouterr().out)
        problems = [each for each in report["findings"] if each["level"] == "problem"]
        assert report["healthy"] is (problems == [])
        assert status == (1 if problems else 0)
        assert all(each["advice"] for each in problems)
        found: list[dict[str, Any]] = report["findings"]
        return found

    return look


def messages(found: list[dict[str, Any]], level: str) -> str:
    return "\n".join(each["message"] for each in found if each["level"] == level)


def ledger(node: str, *claims: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "vramline.io/v1alpha1",
        "kind": "GpuLedger",
        "metadata": {"name": node},
        "spec": {"epoch": 1, "claims": {f"GPU-{node}-0": list(claims)} if claims else {}},
    }


Told = Callable[[], list[dict[str, Any]]]


def test_before_a_scheduler_ran_it_says_what_is_missing(told: Told) -> None:
    problems = messages(told(), "problem")

    assert "no Vramline has ever led" in problems
    assert "no caBundle that can be read" in problems
    assert "ValidatingAdmissionPolicyBinding missing or not in force: vramline-" in problems


def test_kinds_rights_and_version_are_as_installed(told: Told) -> None:
    sound = messages(told(), "ok")

    assert "Kubernetes v1." in sound
    assert "3 CustomResourceDefinition objects are there" in sound
    assert "system:serviceaccount:vramline-system:vramline-scheduler has all " in sound


def test_while_a_scheduler_runs_leader_and_webhook_are_found(plane: ControlPlane, told: Told) -> None:
    with run_scheduler(plane, options=["--webhook-listen", "127.0.0.1:0"]):
        wait_until(lambda: "asks.vramline.io is trusted until" in messages(told(), "ok"), "the certificate")
        found = told()

    assert "Vramline leads: " in messages(found, "ok")
    assert "no kube-scheduler has ever led" in messages(found, "problem")


def test_a_leader_that_fell_silent_is_a_problem(admin: httpx.Client, told: Told) -> None:
    spec = {
        "holderIdentity": "elsewhere_1",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T00:00:00.000000Z",
    }
    body = {"metadata": {"name": "vramline-kube-scheduler"}, "spec": spec}
    admin.post(LEASES, json=body).raise_for_status()

    assert "kube-scheduler elsewhere_1 has not renewed its Lease" in messages(told(), "problem")


def test_a_right_that_was_taken_away_is_named(admin: httpx.Client, told: Told) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/vramline-scheduler"
    role = admin.get(path).json()
    poorer = {"rules": [rule for rule in role["rules"] if rule["resources"] != ["gpuledgers"]]}
    admin.patch(path, json=poorer, headers=MERGE).raise_for_status()
    wait_until(lambda: "update gpuledgers" in messages(told(), "problem"), "the poorer role")
    admin.patch(path, json={"rules": role["rules"]}, headers=MERGE).raise_for_status()


def test_a_webhook_that_is_gone_is_a_problem(admin: httpx.Client, told: Told) -> None:
    stored = admin.get(CONFIGURATION).json()
    admin.delete(CONFIGURATION).raise_for_status()

    assert "there is no MutatingWebhookConfiguration vramline" in messages(told(), "problem")

    stored["metadata"] = {"name": "vramline"}
    admin.post(CONFIGURATION.rsplit("/", 1)[0], json=stored).raise_for_status()


def test_an_allocation_without_a_claim_is_a_problem(admin: httpx.Client, told: Told) -> None:
    add_gpu_node(admin, "lost", 32_600)
    allocation = {"node": "lost", "gpus": [{"uuid": "GPU-lost-0", "mib": 8_000}], "ledgerVersion": 1}
    body = {
        "metadata": {
            "name": "lost",
            "annotations": {"vramline.io/vram": "8000", "vramline.io/allocation": json.dumps(allocation)},
        },
        "spec": {"nodeName": "lost", "containers": [{"name": "main", "image": "example"}]},
    }
    admin.post("/api/v1/namespaces/default/pods", json=body).raise_for_status()

    assert "pod default/lost has an allocation that its node's GpuLedger does not hold" in messages(
        told(), "problem"
    )


def test_a_claim_of_nobody_is_told_and_an_old_report_too(admin: httpx.Client, told: Told) -> None:
    add_gpu_node(admin, "orphaned", 32_600)
    claim = {"podUID": "gone", "pod": "team/gone", "mib": 8_000, "epoch": 1}
    admin.post(f"{GROUP}/gpuledgers", json=ledger("orphaned", claim)).raise_for_status()
    old = {"status": {"observedAt": "2026-01-01T00:00:00Z"}}
    admin.patch(f"{GROUP}/gpureports/orphaned/status", json=old, headers=MERGE).raise_for_status()

    warnings = messages(told(), "warning")

    assert "the ledger of orphaned still holds memory of pods that are gone: team/gone" in warnings
    assert "GpuReport orphaned is " in warnings


def test_a_card_promised_twice_is_a_problem(admin: httpx.Client, told: Told) -> None:
    add_gpu_node(admin, "twice", 32_600)
    claims = [
        {"podUID": f"uid-{number}", "pod": f"team/p{number}", "mib": 20_000, "epoch": 1} for number in (1, 2)
    ]
    admin.post(f"{GROUP}/gpuledgers", json=ledger("twice", *claims)).raise_for_status()

    assert "twice/GPU-twice-0 is promised 7,500 MiB more than it can hold" in messages(told(), "problem")


def test_a_gpu_pod_that_somebody_else_bound_is_told(admin: httpx.Client, told: Told) -> None:
    add_gpu_node(admin, "taken", 32_600)
    body = {
        "metadata": {"name": "stranger"},
        "spec": {
            "nodeName": "taken",
            "containers": [
                {"name": "main", "image": "example", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
            ],
        },
    }
    admin.post("/api/v1/namespaces/default/pods", json=body).raise_for_status()

    assert "1 GPU pods were bound by somebody else and name no card (default/stranger)" in messages(
        told(), "warning"
    )


def test_a_gpu_pod_that_holds_nothing_is_told(admin: httpx.Client, told: Told) -> None:
    add_gpu_node(admin, "uncounted", 32_600)
    body = {
        "metadata": {"name": "uncounted", "annotations": {"gpu-memory": "8000"}},
        "spec": {"nodeName": "uncounted", "containers": [{"name": "main", "image": "example"}]},
    }
    admin.post("/api/v1/namespaces/default/pods", json=body).raise_for_status()

    assert "1 GPU pods were bound by somebody else and hold nothing in the books (default/uncounted)" in (
        messages(told(), "warning")
    )


def test_a_node_whose_sources_contradict_each_other_is_a_problem(admin: httpx.Client, told: Told) -> None:
    labels = {
        "nvidia.com/gpu.count": "4",
        "nvidia.com/gpu.memory": "32600",
        "nvidia.com/gpu.product": "NVIDIA-L40S",
    }
    admin.post("/api/v1/nodes", json=gpu_node("torn", labels=labels)).raise_for_status()
    report = {"apiVersion": "vramline.io/v1alpha1", "kind": "GpuReport", "metadata": {"name": "torn"}}
    admin.post(f"{GROUP}/gpureports", json=report).raise_for_status()
    seen = {"observedAt": "2026-01-01T00:00:00Z", "gpus": [{"uuid": "GPU-torn-0", "totalMiB": 32_600}]}
    admin.patch(f"{GROUP}/gpureports/torn/status", json={"status": seen}, headers=MERGE).raise_for_status()

    assert "node torn: InventoryConflict: " in messages(told(), "problem")


def test_what_a_runtime_does_is_unknown_until_an_agent_proves_it(admin: httpx.Client, told: Told) -> None:
    for name in ("proved", "guessed"):
        add_gpu_node(admin, name, 32_600)
    admin.post("/api/v1/namespaces", json={"metadata": {"name": "vramline-agent"}}).raise_for_status()
    container = {"name": "agent", "image": "example"}
    agent = {
        "metadata": {"name": "agent-1"},
        "spec": {"nodeName": "proved", "containers": [container]},
    }
    admin.post("/api/v1/namespaces/vramline-agent/pods", json=agent).raise_for_status()

    found = told()

    assert "given the GPUs named to them on proved" in messages(found, "ok")
    unknown = [line for line in messages(found, "warning").splitlines() if line.startswith("unknown whether")]
    assert len(unknown) == 1
    assert "guessed" in unknown[0]
    assert "proved" not in unknown[0]


def test_a_user_without_rights_is_told_in_one_line(
    plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = plane.issue_user("nobody", "nobody")

    assert main(["doctor", f"--kubeconfig={nobody}"]) == 1

    assert "forbidden" in capsys.readouterr().err.lower()
