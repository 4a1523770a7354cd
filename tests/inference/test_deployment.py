"""From an order to the object: how a service is sized, where it is sent, and what its engine is told."""

import functools
import os
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # comes with kubernetes-validate, without stubs
import pytest
import yaml

from inference.clusters import GpuNode, cluster_of, seen
from inference.models import LLAMA_8B
from vramline.errors import RequestError
from vramline.inference.deployment import Deployer, Placement, Prepared, ServiceOrder
from vramline.inference.estimate import Plan
from vramline.inference.gpu_cluster import GpuCluster
from vramline.inference.source import model_of_config
from vramline.wire.ome_runtime import ServingRuntime, read_serving_runtime
from vramline.wire.ome_v1beta1 import DeploymentMode, write_inference_service

VLLM = ["python3", "-m", "vllm.entrypoints.openai.api_server", "--gpu-memory-utilization", "0.9"]
SGLANG = ["python3", "-m", "sglang.launch_server", "--mem-frac", "0.9"]


def runtime_of(
    command: list[str], *, gpus: int = 1, args: list[str] | None = None, **part: Any
) -> ServingRuntime:
    runner = {
        "name": "ome-container",
        "command": command,
        "args": args,
        "resources": {"limits": {"nvidia.com/gpu": gpus, "cpu": "10", "memory": "30Gi"}},
    }
    return read_serving_runtime(
        {"metadata": {"name": "r"}, "spec": {"engineConfig": {"runner": runner, **part}}}
    )


def prepare(
    *nodes: GpuNode, runtime: ServingRuntime | None = None, said: list[str] | None = None, **order: Any
) -> Prepared:
    deployer = Deployer(
        read_cluster=lambda: cluster_of(*nodes),
        runtime=runtime,
        desk=None,
        say=(said if said is not None else []).append,
    )
    base: dict[str, Any] = {"name": "s", "namespace": "ns", "model": "m", "runtime": "r"}
    return deployer.prepare(ServiceOrder(**{**base, **order}))


def node(name: str, *cards: tuple[int, int], **fields: Any) -> GpuNode:
    """A node whose host has room for everything."""
    return seen(name, *cards, allocatable={"cpu": "512", "memory": "4Ti"}, **fields)


def test_our_scheduler_gets_the_claim_and_the_engine_keeps_to_it() -> None:
    made = prepare(
        node("n1", (0, 0)),
        runtime=runtime_of(VLLM),
        placement=Placement.SCHEDULER,
        gpu_memory=20_480,
    )

    wish = made.wish
    assert (wish.scheduler, wish.node) == ("vramline", None)
    assert wish.pod_annotations == {"vramline.io/vram": "20480Mi", "vramline.io/gpus": "1"}
    assert wish.args == ("--gpu-memory-utilization=0.437",)
    assert 0.437 * 40_960 + 2_560 <= 20_480


def test_sglang_is_told_in_its_own_words() -> None:
    made = prepare(
        node("n1", (0, 0)),
        runtime=runtime_of(SGLANG),
        placement=Placement.SCHEDULER,
        gpu_memory=20_480,
    )

    assert made.wish.args == ("--mem-fraction-static=0.387",)


def test_flags_stand_behind_those_of_the_runtime() -> None:
    runtime = runtime_of(["vllm", "serve"], args=["--port", "8080", "--gpu-memory-utilization=0.9"])

    made = prepare(node("n1", (0, 0)), runtime=runtime, placement=Placement.SCHEDULER, gpu_memory=20_480)

    assert made.wish.args == (
        "--port",
        "8080",
        "--gpu-memory-utilization=0.9",
        "--gpu-memory-utilization=0.437",
    )


def test_a_shell_is_told_nothing_and_the_user_is() -> None:
    said: list[str] = []

    made = prepare(
        node("n1", (0, 0)),
        runtime=runtime_of(["/bin/bash", "-c"], args=["exec vllm serve m"]),
        said=said,
        placement=Placement.SCHEDULER,
        gpu_memory=20_480,
    )

    assert made.wish.args == ()
    assert said == [
        "The engine is not told, as its runtime is not understood: --gpu-memory-utilization=0.437"
    ]


def test_a_model_claims_the_high_figure_of_its_estimate() -> None:
    made = prepare(
        node("n1", (0, 0)),
        runtime=runtime_of(VLLM),
        placement=Placement.SCHEDULER,
        served=model_of_config(LLAMA_8B, subject="config.json"),
        plan=Plan(context=8192),
    )

    assert made.sizing is not None
    assert 17_000 < made.sizing.mib < 25_000
    assert made.wish.pod_annotations["vramline.io/vram"] == f"{made.sizing.mib}Mi"
    assert "--max-model-len=8192" in made.wish.args
    (fraction,) = [arg for arg in made.wish.args if arg.startswith("--gpu-memory-utilization=")]
    assert float(fraction.partition("=")[2]) * 40_960 < made.sizing.mib


def test_a_model_that_no_card_holds_is_refused_with_what_it_needs() -> None:
    with pytest.raises(RequestError, match=r"needs [0-9,]+ MiB on each; the largest card has 8,192 MiB"):
        prepare(
            node("n1", (0, 0), total=8_192),
            runtime=runtime_of(VLLM),
            served=model_of_config(LLAMA_8B, subject="config.json"),
        )


def test_where_cards_differ_the_service_is_for_one_kind() -> None:
    other = node("n2", (0, 0), total=81_559)
    assert other.cards is not None
    other.cards[0]["model"] = "NVIDIA H100 80GB HBM3"

    made = prepare(
        node("n1", (40_000, 90)),
        other,
        runtime=runtime_of(VLLM),
        placement=Placement.SCHEDULER,
        gpu_memory=20_480,
    )

    assert made.wish.pod_annotations["nvidia.com/use-gputype"] == "nvidia h100 80gb hbm3"
    assert made.wish.args == ("--gpu-memory-utilization=0.219",)


@pytest.mark.parametrize(
    ("placement", "pinned"), [(Placement.SOFT, False), (Placement.PIN, True)], ids=["soft", "pin"]
)
def test_the_best_node_is_named_and_the_engine_told(placement: Placement, *, pinned: bool) -> None:
    made = prepare(
        node("n1", (39_000, 90)),
        node("n2", (0, 0)),
        runtime=runtime_of(VLLM),
        placement=placement,
        gpu_memory=20_480,
    )

    assert made.wish.node is not None
    assert (made.wish.node.name, made.wish.node.pinned) == ("n2", pinned)
    assert (made.wish.scheduler, made.wish.pod_annotations) == ("", {})
    assert made.wish.args == ("--gpu-memory-utilization=0.437",)


def test_where_nothing_is_idle_nothing_is_said_about_nodes() -> None:
    made = prepare(node("n1", (39_000, 90)), runtime=runtime_of(VLLM))

    assert (made.wish.node, made.wish.args) == (None, ())


def test_nodes_that_the_runtimes_pod_could_not_use_never_win() -> None:
    small = seen("n1", (0, 0), allocatable={"cpu": "4", "memory": "512Gi"})
    tainted = node("n2", (0, 0), taints=[{"key": "gpu", "effect": "NoSchedule"}])

    assert prepare(small, tainted, runtime=runtime_of(VLLM)).wish.node is None
    tolerant = runtime_of(VLLM, tolerations=[{"key": "gpu", "operator": "Exists"}])
    made = prepare(small, tainted, runtime=tolerant)
    assert made.wish.node is not None
    assert made.wish.node.name == "n2"


def test_selection_switched_off_leaves_everything_alone() -> None:
    made = prepare(runtime=runtime_of(VLLM), placement=None, gpu_memory=20_480)

    assert (made.wish.node, made.wish.scheduler, made.wish.args) == (None, "", ())


def test_gpus_come_from_the_runtime_unless_they_are_given() -> None:
    runtime = runtime_of(VLLM, gpus=4)

    assert prepare(runtime=runtime, placement=None).wish.gpus == 4
    given = prepare(runtime=runtime, placement=None, gpus=2).wish
    assert (given.gpus, given.args) == (2, ("--tensor-parallel-size=2",))


def test_a_runtime_with_leader_and_worker_makes_a_service_of_several_nodes() -> None:
    part = {"runner": {"command": SGLANG, "resources": {"limits": {"nvidia.com/gpu": "8"}}}}
    runtime = read_serving_runtime(
        {"metadata": {"name": "r"}, "spec": {"engineConfig": {"leader": part, "worker": {**part, "size": 3}}}}
    )

    wish = prepare(
        node("n1", *[(0, 0)] * 8, total=81_559),
        runtime=runtime,
        placement=Placement.SCHEDULER,
        gpu_memory=40_960,
    ).wish

    assert (wish.mode, wish.workers, wish.gpus) == (DeploymentMode.MULTI_NODE, 3, 32)
    assert wish.pod_annotations["vramline.io/gpus"] == "8"
    assert wish.args == wish.worker_args == ("--mem-fraction-static=0.445",)


@pytest.mark.parametrize(
    ("order", "complaint"),
    [
        ({"placement": Placement.SCHEDULER}, "gpu_memory: is missing"),
        ({"gpu_memory": 2_000}, "gpu_memory = 2000: is less than vllm may take"),
        ({"gpu_memory": 50_000}, "gpu_memory = 50000: is more than the largest card has"),
    ],
    ids=["no claim for our scheduler", "less than an engine takes", "more than a card has"],
)
def test_an_order_that_cannot_be_carried_out_is_refused(order: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RequestError, match=complaint):
        prepare(node("n1", (0, 0)), runtime=runtime_of(VLLM), **order)


@pytest.mark.parametrize(
    "order",
    [
        {"mode": DeploymentMode.SERVERLESS, "placement": Placement.SCHEDULER, "gpu_memory": 20_480},
        {"mode": DeploymentMode.MULTI_NODE, "workers": 1, "gpus": 2, "placement": Placement.PIN},
        {"mode": DeploymentMode.MULTI_NODE, "workers": 2, "gpus": 4},
        {"storage": {"bucket": "b"}},
    ],
    ids=["Knative has no scheduler", "two pods on one node", "unequal parts", "storage"],
)
def test_what_ome_cannot_carry_out_is_refused_before_a_cluster_is_asked(order: dict[str, Any]) -> None:
    def unasked() -> GpuCluster:
        raise AssertionError

    deployer = Deployer(read_cluster=unasked, runtime=None, desk=None, say=len)

    with pytest.raises(RequestError):
        deployer.prepare(ServiceOrder(name="s", namespace="ns", model="m", runtime="r", **order))


# ── the objects that OME ships ───────────────────────────────────────────────────────────────────────


def omes_folder() -> Path:
    folder = os.environ.get("VRAMLINE_DATA")
    if not folder:
        pytest.skip("VRAMLINE_DATA is not set: the folder with OME's objects")
    return Path(folder) / "ome"


@functools.cache
def documents(part: str) -> list[tuple[str, dict[str, Any]]]:
    """Every object under a folder of OME's, with the name of its file."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [
        (file.name, document)
        for file in sorted((omes_folder() / part).rglob("*.yaml"))
        for document in yaml.load_all(file.read_text(encoding="utf-8"), Loader=loader)
        if document
    ]


def test_a_service_of_every_runtime_that_ome_ships_is_valid_by_omes_schema() -> None:
    crd = dict(documents("crds"))["ome.io_inferenceservices.yaml"]
    validator = jsonschema.Draft7Validator(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    cards = [(0, 0)] * 16
    runtimes = [each for _, each in documents("runtimes") if each["kind"] == "ClusterServingRuntime"]

    for document in runtimes:
        runtime = read_serving_runtime(document)
        for placement in (Placement.SCHEDULER, Placement.SOFT):
            made = prepare(
                node("n1", *cards, total=81_559),
                runtime=runtime,
                placement=placement,
                gpu_memory=40_960,
            )
            validator.validate(write_inference_service(made.wish))
            assert any("mem" in arg for arg in made.wish.args) == (runtime.pod.takes_flags)

    assert len(runtimes) == 207
