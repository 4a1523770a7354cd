"""`vramline deploy isvc` from reservation to bound pod, with OME's own kinds and a stand-in for OME."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import (
    VramlineProcess,
    add_gpu_node,
    apply_crds,
    extender_configuration,
    report_cards,
    run_scheduler,
)
from e2e.ome_stand_in import OMES_KINDS, make_pods, set_ready
from inference.models import LLAMA_8B
from vramline.cli.main import main
from vramline.inference import OMEController
from vramline.inference.deployment import Placement, ServiceOrder
from vramline.inference.reservation_client import NoRoomError

DEPLOYS = int(os.environ.get("DEPLOYS", "40"))
"""How many services are deployed at once; `make soak` takes a hundred."""
NODES = [f"n{number}" for number in range(DEPLOYS // 10)]
CARD_MIB = 46_068
COMMAND = ["python3", "-m", "vllm.entrypoints.openai.api_server", "--gpu-memory-utilization", "0.9"]


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    folder = os.environ.get("VRAMLINE_DATA")
    if not folder:
        pytest.skip("VRAMLINE_DATA is not set: the folder with OME's CRDs")
    with plane.client() as client:
        apply_crds(client)
        for kind in ("inferenceservices", "clusterservingruntimes"):
            text = (Path(folder) / "ome" / "crds" / f"ome.io_{kind}.yaml").read_text(encoding="utf-8")
            crd = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 — the safe one
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            client.post(path, json=crd, timeout=60).raise_for_status()
            wait_until(lambda kind=kind: client.get(f"{OMES_KINDS}/{kind}").is_success, kind)  # type: ignore[misc]
        runner = {
            "name": "ome-container",
            "image": "vllm",
            "command": COMMAND,
            "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "100m"}},
        }
        add_runtime(client, "vllm", {"runner": runner})
        part = {"runner": {**runner, "resources": {"limits": {"nvidia.com/gpu": "2"}}}}
        add_runtime(client, "vllm-multi", {"leader": part, "worker": {**part, "size": 1}})
        yield client


def add_runtime(client: httpx.Client, name: str, engine: dict[str, Any]) -> None:
    runtime = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "ClusterServingRuntime",
        "metadata": {"name": name},
        "spec": {"supportedModelFormats": [], "engineConfig": engine},
    }
    client.post(f"{OMES_KINDS}/clusterservingruntimes", json=runtime).raise_for_status()


@pytest.fixture(scope="module")
def vramline(plane: ControlPlane, admin: httpx.Client) -> Iterator[VramlineProcess]:
    """The scheduler, leading, with kube-scheduler beside it, over nodes with two cards."""
    for name in NODES:
        add_gpu_node(admin, name, CARD_MIB, CARD_MIB)
    with run_scheduler(plane) as process:
        plane.start_scheduler(extender_configuration(process.port))
        yield process


@pytest.fixture
def server(vramline: VramlineProcess) -> str:
    return f"127.0.0.1:{vramline.port}"


@pytest.fixture
def kubeconfig(plane: ControlPlane, vramline: VramlineProcess) -> str:
    vramline.client.get("/readyz").raise_for_status()
    return str(plane.folder / "admin.kubeconfig")


def order(name: str, **fields: Any) -> ServiceOrder:
    base: dict[str, Any] = {
        "name": name,
        "namespace": "team",
        "model": "m",
        "runtime": "vllm",
        "placement": Placement.SCHEDULER,
        "gpu_memory": 20_480,
    }
    return ServiceOrder(**{**base, **fields})


def engine_of(admin: httpx.Client, name: str) -> dict[str, Any]:
    path = f"{OMES_KINDS}/namespaces/team/inferenceservices/{name}"
    found: dict[str, Any] = admin.get(path).raise_for_status().json()["spec"]["engine"]
    return found


def allocation(admin: httpx.Client, name: str) -> dict[str, Any]:
    """Wait until a pod is bound, and return what it was given."""
    path = f"/api/v1/namespaces/team/pods/{name}"

    def bound() -> bool:
        return bool(admin.get(path).raise_for_status().json()["spec"].get("nodeName"))

    wait_until(bound, f"{name} bound")
    found: dict[str, Any] = json.loads(
        admin.get(path).json()["metadata"]["annotations"]["vramline.io/allocation"]
    )
    return found


def reservations(vramline: VramlineProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = vramline.client.get("/api/v1/reservations").json()["reservations"]
    return found


@pytest.fixture(autouse=True)
def empty(admin: httpx.Client, vramline: VramlineProcess) -> Iterator[None]:
    """Delete all services and pods after a test, and wait until their memory is seen to be free."""
    yield
    admin.delete(f"{OMES_KINDS}/namespaces/team/inferenceservices")
    admin.delete("/api/v1/namespaces/team/pods?gracePeriodSeconds=0")

    def is_free() -> bool:
        for name in NODES:
            report_cards(admin, name, [{"totalMiB": CARD_MIB, "usedMiB": 0, "processes": []}] * 2)
        return not any(each["held_mib"] for each in vramline.client.get("/api/v1/gpus").json()["gpus"])

    wait_until(is_free, "memory free again", seconds=90)


def test_a_service_gets_the_memory_that_was_reserved_before_it_was_made(
    admin: httpx.Client, vramline: VramlineProcess, kubeconfig: str, server: str
) -> None:
    said: list[str] = []
    controller = OMEController(kubeconfig, say=said.append, server=server)

    controller.deploy(order("chat"))

    (held,) = reservations(vramline)
    engine = engine_of(admin, "chat")
    assert (held["owner"], held["gpus"][0]["mib"]) == ("team/chat", 20_480)
    assert said[0].startswith(f"Reserved 20,480 MiB on 1 GPU(s) of node '{held['node']}' until ")
    assert (engine["schedulerName"], "affinity" in engine) == ("vramline", False)
    assert engine["annotations"]["vramline.io/vram"] == "20480Mi"
    assert engine["runner"]["args"] == ["--gpu-memory-utilization=0.388"]
    make_pods(admin, "team", "chat")
    given = allocation(admin, "chat-engine")
    assert given["node"] == held["node"]
    assert given["gpus"] == [{"uuid": held["gpus"][0]["uuid"], "mib": 20_480}]
    wait_until(lambda: not reservations(vramline), "taken over")


def test_the_command_estimates_deploys_waits_and_tells_how_far_it_is(
    admin: httpx.Client, kubeconfig: str, server: str, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA_8B), encoding="utf-8")
    call = ["deploy", "isvc", "llama", "--model", "m", "--runtime", "vllm", "-n", "team", "--server", server]
    call += ["--config", str(config), "--context", "8192", "--kubeconfig", kubeconfig]
    path = f"{OMES_KINDS}/namespaces/team/inferenceservices/llama"

    with subprocess.Popen(
        [sys.executable, "-m", "vramline", *call, "--wait", "--timeout", "90"],
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        wait_until(lambda: admin.get(path).is_success, "the service")
        make_pods(admin, "team", "llama")
        given = allocation(admin, "llama-engine")
        set_ready(admin, "team", "llama")
        told = command.communicate(timeout=120)[1]

    args = engine_of(admin, "llama")["runner"]["args"]
    assert command.returncode == 0, told
    assert 17_000 < given["gpus"][0]["mib"] < CARD_MIB
    assert "--max-model-len=8192" in args
    assert any(arg.startswith("--gpu-memory-utilization=0.") for arg in args)
    assert "Created InferenceService 'llama' in namespace 'team'" in told
    assert "Ready" in told.splitlines()[-1]


def test_a_dry_run_prints_an_object_that_the_api_server_takes_strictly(
    admin: httpx.Client, kubeconfig: str, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["deploy", "isvc", "dry", "--model", "m", "--runtime", "vllm", "-n", "default"]
    call += ["--gpu-memory", "20Gi", "--kubeconfig", kubeconfig, "--server", server, "--dry-run"]

    assert main(call) == 0

    document = yaml.safe_load(capsys.readouterr().out)
    path = f"{OMES_KINDS}/namespaces/default/inferenceservices"
    strict = {"fieldValidation": "Strict", "dryRun": "All"}
    assert admin.post(path, json=document, params=strict).status_code == 201
    assert admin.get(f"{path}/dry").status_code == 404


def test_a_written_service_gets_size_and_placement_and_keeps_the_rest(
    admin: httpx.Client, kubeconfig: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "mine", "namespace": "default", "labels": {"team": "a"}},
        "spec": {
            "model": {"name": "m"},
            "runtime": {"name": "vllm"},
            "engine": {"minReplicas": 2, "maxReplicas": 3},
            "router": {"minReplicas": 1, "maxReplicas": 1},
        },
    }
    file = tmp_path / "service.json"
    file.write_text(json.dumps(written), encoding="utf-8")
    call = ["deploy", "isvc", "-f", str(file), "--gpu-memory", "20Gi", "--kubeconfig", kubeconfig]

    assert main([*call, "--dry-run"]) == 0

    document = yaml.safe_load(capsys.readouterr().out)
    engine = document["spec"]["engine"]
    assert (engine["minReplicas"], engine["maxReplicas"]) == (2, 3)
    assert engine["annotations"]["vramline.io/vram"] == "20480Mi"
    assert document["metadata"]["labels"] == {"team": "a"}
    assert document["spec"]["router"] == written["spec"]["router"]  # type: ignore[index]
    path = f"{OMES_KINDS}/namespaces/default/inferenceservices"
    strict = {"fieldValidation": "Strict", "dryRun": "All"}
    assert admin.post(path, json=document, params=strict).status_code == 201


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="scheduler"),
        pytest.param({"placement": Placement.SOFT}, id="soft"),
        pytest.param({"placement": Placement.PIN}, id="pin"),
        pytest.param({"placement": None}, id="left alone"),
        pytest.param({"mode": "Serverless", "placement": Placement.SOFT}, id="serverless"),
        pytest.param({"runtime": "vllm-multi"}, id="several nodes"),
        pytest.param({"runtime": "vllm-multi", "placement": Placement.SOFT}, id="several nodes, soft"),
    ],
)
def test_every_mode_is_taken_strictly(admin: httpx.Client, kubeconfig: str, fields: dict[str, Any]) -> None:
    document = OMEController(kubeconfig).deploy(order("strict", namespace="default", **fields), dry_run=True)

    path = f"{OMES_KINDS}/namespaces/default/inferenceservices"
    answer = admin.post(path, json=document, params={"fieldValidation": "Strict", "dryRun": "All"})

    assert answer.status_code == 201, answer.text


def test_leader_and_worker_take_over_one_reservation_each(
    admin: httpx.Client, vramline: VramlineProcess, kubeconfig: str, server: str
) -> None:
    OMEController(kubeconfig, server=server).deploy(order("big", runtime="vllm-multi"))
    held = [each for each in reservations(vramline) if each["owner"] == "team/big"]

    names = make_pods(admin, "team", "big")
    given = [allocation(admin, name) for name in names]

    assert [len(each["gpus"]) for each in held] == [2, 2]
    assert Counter(each["node"] for each in given) == Counter(each["node"] for each in held)
    wait_until(lambda: not reservations(vramline), "taken over")


def test_a_waiting_command_ends_early_with_the_reason(
    admin: httpx.Client, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    OMEController(kubeconfig).deploy(order("crash"))
    (name,) = make_pods(admin, "team", "crash")
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "CUDA out of memory"}}
    status = {"name": "ome-container", "image": "i", "imageID": "", "ready": False, "restartCount": 3}
    patch = {"status": {"containerStatuses": [{**status, "state": waiting}]}}
    headers = {"Content-Type": "application/merge-patch+json"}
    allocation(admin, name)
    path = f"/api/v1/namespaces/team/pods/{name}/status"
    admin.patch(path, json=patch, headers=headers).raise_for_status()
    controller, seen = OMEController(kubeconfig), list[str]()

    ready = controller.wait_for_ready(
        "crash", "team", timeout=60, poll_interval=0.2, on_change=lambda state: seen.append(state.stage)
    )

    assert (ready, seen) == (False, ["Pulling"])
    assert controller.last_problem == (
        "container ome-container of pod crash-engine waits: CrashLoopBackOff (CUDA out of memory)"
    )
    assert "Created InferenceService 'crash'" in capsys.readouterr().out


def test_many_deployments_at_once_get_exactly_the_memory_that_is_there(
    admin: httpx.Client, vramline: VramlineProcess, kubeconfig: str, server: str
) -> None:
    """Forty onto a cluster that holds 24; with DEPLOYS=100, a hundred onto one that holds 60."""
    room, mib = len(NODES) * 2 * 3, (CARD_MIB - 100) // 3
    assert room == DEPLOYS * 6 // 10

    def deploy(number: int) -> bool:
        try:
            OMEController(kubeconfig, say=len, server=server).deploy(order(f"s{number}", gpu_memory=mib))
        except NoRoomError:
            return False
        return True

    with ThreadPoolExecutor(16) as executor:
        made = list(executor.map(deploy, range(DEPLOYS)))

    names = [f"s{number}" for number, is_made in enumerate(made) if is_made]
    assert len(names) == room
    for name in names:
        make_pods(admin, "team", name)
    given = Counter(allocation(admin, f"{name}-engine")["gpus"][0]["uuid"] for name in names)
    assert set(given.values()) == {3}
    assert len(given) == len(NODES) * 2
    assert len(admin.get(f"{OMES_KINDS}/namespaces/team/inferenceservices").json()["items"]) == room
    wait_until(lambda: not reservations(vramline), "taken over")
