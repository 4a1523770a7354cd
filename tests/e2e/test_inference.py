"""The Python API against a real API server."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from controlplane.kubernetes import gpu_node
from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import add_gpu_node, apply_crds, report_cards
from inference.models import LLAMA_8B
from vramline.cli.main import main
from vramline.inference import (
    OMEController,
    find_best_node_for_deployment,
    get_cluster_gpu_status,
    get_node_gpu_summaries,
)
from vramline.kube.failures import ConflictError


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        client.post(
            "/api/v1/nodes", json=gpu_node("plain", allocatable={"nvidia.com/gpu": "8"})
        ).raise_for_status()
        yield client


@pytest.fixture
def kubeconfig(plane: ControlPlane, admin: httpx.Client) -> str:
    admin.get("/version").raise_for_status()
    return str(plane.folder / "admin.kubeconfig")


def test_a_cluster_without_vramlines_kinds_has_devices_and_no_known_card(kubeconfig: str) -> None:
    summaries = get_node_gpu_summaries(kubeconfig=kubeconfig)

    assert (summaries["plain"].total_gpus, summaries["plain"].unknown_gpu_count) == (8, 8)
    assert find_best_node_for_deployment(kubeconfig=kubeconfig) is None


def test_reports_and_pods_of_the_cluster_are_the_answer(admin: httpx.Client, kubeconfig: str) -> None:
    apply_crds(admin)
    add_gpu_node(admin, "n1", 40_960, 40_960)
    add_gpu_node(admin, "n2", 40_960)
    idle = {"totalMiB": 40_960, "usedMiB": 0, "processes": [], "utilizationPercent": 0}
    report_cards(admin, "n2", [idle])
    pod = {
        "metadata": {"name": "holds"},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2"}}}],
        },
    }
    admin.post("/api/v1/namespaces/default/pods", json=pod).raise_for_status()

    infos = [info for info in get_cluster_gpu_status(kubeconfig=kubeconfig) if info.has_metrics]

    assert [(info.uuid, info.is_allocatable, info.state) for info in infos] == [
        ("GPU-n1-0", False, "known-busy"),
        ("GPU-n1-1", False, "known-busy"),
        ("GPU-n2-0", True, "known-free"),
    ]
    assert find_best_node_for_deployment(1, kubeconfig=kubeconfig) == "n2"
    assert find_best_node_for_deployment(2, kubeconfig=kubeconfig) is None


def test_a_caller_inside_an_event_loop_gets_its_answer_too(kubeconfig: str) -> None:
    async def inside() -> str | None:
        return find_best_node_for_deployment(1, kubeconfig=kubeconfig)

    assert asyncio.run(inside()) == "n2"


def test_fit_decides_on_the_cluster_of_a_kubeconfig(
    kubeconfig: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA_8B), encoding="utf-8")

    status = main(["fit", str(config), "--ctx", "8192", "--kubeconfig", kubeconfig, "-o", "json"])

    ways = json.loads(capsys.readouterr().out)["ways"]
    assert (status, ways[0]["nodes"], ways[0]["gpu_uuids"]) == (0, ["n2"], ["GPU-n2-0"])
    assert (ways[1]["tp"], ways[1]["fits"]) == (2, False)


# ── OME ──────────────────────────────────────────────────────────────────────────────────────────

SERVICES = "/apis/ome.io/v1beta1/namespaces/team/inferenceservices"
ASKED: dict[str, Any] = {
    "task_name": "My Task",
    "namespace": "team",
    "model_name": "meta/llama-3-2-1b-instruct",
    "runtime_name": "sglang-llama-small",
}


@pytest.fixture(scope="module")
def ome(admin: httpx.Client) -> httpx.Client:
    """The API server with OME's own kinds, and nobody who acts on them."""
    folder = os.environ.get("VRAMLINE_DATA")
    if not folder:
        pytest.skip("VRAMLINE_DATA is not set: the folder with OME's CRDs")
    for kind in ("inferenceservices", "clusterbasemodels", "clusterservingruntimes"):
        text = (Path(folder) / "ome" / "crds" / f"ome.io_{kind}.yaml").read_text(encoding="utf-8")
        crd = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 — the safe one
        admin.post(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=crd, timeout=60
        ).raise_for_status()
        wait_until(lambda kind=kind: admin.get(f"/apis/ome.io/v1beta1/{kind}").is_success, kind)  # type: ignore[misc]
    return admin


@pytest.fixture
def controller(kubeconfig: str, ome: httpx.Client) -> OMEController:
    ome.get("/version").raise_for_status()
    return OMEController(kubeconfig)


def engine_of(ome: httpx.Client, name: str) -> dict[str, Any]:
    found: dict[str, Any] = ome.get(f"{SERVICES}/{name}").raise_for_status().json()["spec"]["engine"]
    return found


def test_a_service_prefers_the_node_with_idle_cards(
    ome: httpx.Client, controller: OMEController, capsys: pytest.CaptureFixture[str]
) -> None:
    name = controller.deploy_inference_service(**ASKED, experiment_id="1", parameters={"tp-size": "1"})

    assert name == "my-task-exp1"
    preferred = engine_of(ome, name)["affinity"]["nodeAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    values = [each["values"] for each in preferred[0]["preference"].get("matchExpressions", [])]
    names = [each["values"] for each in preferred[0]["preference"].get("matchFields", [])]
    assert values + names == [["n2"]]
    told = capsys.readouterr().out
    assert "✓ Selected node: n2\n" in told
    assert "Created InferenceService 'my-task-exp1' in namespace 'team' on node 'n2'\n" in told


def test_a_pinned_service_may_go_nowhere_else(ome: httpx.Client, controller: OMEController) -> None:
    name = controller.deploy_inference_service(**ASKED, experiment_id="2", parameters={}, placement="pin")

    assert name is not None
    assert (
        "requiredDuringSchedulingIgnoredDuringExecution" in engine_of(ome, name)["affinity"]["nodeAffinity"]
    )


def test_where_nothing_is_idle_nothing_is_said(ome: httpx.Client, controller: OMEController) -> None:
    name = controller.deploy_inference_service(**ASKED, experiment_id="3", parameters={"tp_size": 8})

    assert name is not None
    assert "affinity" not in engine_of(ome, name)
    assert engine_of(ome, name)["runner"]["resources"]["limits"] == {"nvidia.com/gpu": "8"}


def test_selection_can_be_switched_off(ome: httpx.Client, controller: OMEController) -> None:
    name = controller.deploy_inference_service(
        **ASKED, experiment_id="4", parameters={}, enable_gpu_selection=False
    )

    assert name is not None
    assert {"affinity", "schedulerName"}.isdisjoint(engine_of(ome, name))


def test_our_scheduler_gets_the_pod_with_its_memory(ome: httpx.Client, controller: OMEController) -> None:
    name = controller.deploy_inference_service(
        **ASKED, experiment_id="5", parameters={"tp": 2}, placement="scheduler", gpu_memory="20Gi"
    )

    assert name is not None
    engine = engine_of(ome, name)
    assert (engine["schedulerName"], "affinity" in engine) == ("vramline", False)
    assert engine["annotations"] == {"vramline.io/vram": "20480Mi", "vramline.io/gpus": "2"}


def test_a_dry_run_writes_nothing(ome: httpx.Client, controller: OMEController) -> None:
    name = controller.deploy_inference_service(**ASKED, experiment_id="6", parameters={}, dry_run=True)

    assert ome.get(f"{SERVICES}/{name}").status_code == 404


def test_what_runs_is_not_changed_by_deploying_it_again(controller: OMEController) -> None:
    with pytest.raises(ConflictError):
        controller.deploy_inference_service(**ASKED, experiment_id="1", parameters={"tp-size": 8})


def set_ready(ome: httpx.Client, name: str, status: str) -> None:
    patch = {
        "status": {
            "url": "http://s.example",
            "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }
    }
    headers = {"Content-Type": "application/merge-patch+json"}
    ome.patch(f"{SERVICES}/{name}/status", json=patch, headers=headers).raise_for_status()


def test_waiting_ends_when_the_service_is_ready(ome: httpx.Client, controller: OMEController) -> None:
    assert controller.get_service_url("my-task-exp1", "team") is None
    assert not controller.wait_for_ready("my-task-exp1", "team", timeout=0.1, poll_interval=0.1)

    set_ready(ome, "my-task-exp1", "True")

    assert controller.wait_for_ready("my-task-exp1", "team", timeout=30, poll_interval=0.1)
    assert controller.get_service_url("my-task-exp1", "team") == "http://s.example"


def test_waiting_ends_early_when_a_container_cannot_start(
    ome: httpx.Client, controller: OMEController
) -> None:
    pods = "/api/v1/namespaces/team/pods"
    pod = {
        "metadata": {"name": "crashed", "labels": {"ome.io/inferenceservice": "my-task-exp2"}},
        "spec": {"nodeName": "n2", "containers": [{"name": "ome-container", "image": "i"}]},
    }
    ome.post(pods, json=pod).raise_for_status()
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "CUDA out of memory"}}
    status = {
        "name": "ome-container",
        "image": "i",
        "imageID": "",
        "ready": False,
        "restartCount": 3,
        "state": waiting,
    }
    headers = {"Content-Type": "application/merge-patch+json"}
    patch = {"status": {"containerStatuses": [status]}}
    ome.patch(f"{pods}/crashed/status", json=patch, headers=headers).raise_for_status()

    assert not controller.wait_for_ready("my-task-exp2", "team", timeout=600, poll_interval=0.1)
    assert controller.last_problem == (
        "container ome-container of pod crashed waits: CrashLoopBackOff (CUDA out of memory)"
    )


def test_deleting_is_done_also_where_it_is_gone_already(ome: httpx.Client, controller: OMEController) -> None:
    assert controller.delete_inference_service("my-task-exp1", "team")
    assert controller.delete_inference_service("my-task-exp1", "team")
    assert ome.get(f"{SERVICES}/my-task-exp1").status_code == 404


def test_models_and_runtimes_are_made_or_brought_in_line(controller: OMEController) -> None:
    spec = {"modelFormat": {"name": "safetensors"}, "storage": {"storageUri": "hf://a/b"}}
    for version in ("1", "2"):
        assert controller.ensure_clusterbasemodel("m", {**spec, "version": version}, labels={"a": version})

    models = controller.list_clusterbasemodels()

    assert [(each["metadata"]["name"], each["spec"]["version"]) for each in models] == [("m", "2")]  # type: ignore[index]
    assert controller.ensure_clusterservingruntime("r", {"supportedModelFormats": []})
    assert len(controller.list_clusterservingruntimes()) == 1
