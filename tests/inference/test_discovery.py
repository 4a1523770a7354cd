"""Discovery as the original has it, and what else must hold; its defects are in test_defects."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.clusters import cluster_of, gpu_pod, plain, seen, unseen
from inference.models import LLAMA_8B
from vramline.errors import RequestError
from vramline.inference import (
    GpuCluster,
    GPUInfo,
    NodeGPUSummary,
    find_best_node_for_deployment,
    get_cluster_gpu_status,
    get_node_gpu_summaries,
)
from vramline.inference.estimate import Plan
from vramline.inference.parallelism import required_gpus
from vramline.inference.selection_text import describe_selection

FREE, BUSY = (0, 0), (38_000, 97)


def best(cluster: GpuCluster, required: int | str = 1, *thresholds: float, **wishes: object) -> str | None:
    return find_best_node_for_deployment(required, *thresholds, cluster=cluster, **wishes)  # type: ignore[arg-type]


# ── as the original has it ───────────────────────────────────────────────────────────────────────


def test_names_order_and_defaults_are_the_originals() -> None:
    parameters = inspect.signature(find_best_node_for_deployment).parameters
    positional = [each for each in parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]

    assert [(each.name, each.default) for each in positional] == [
        ("required_gpus", 1),
        ("utilization_threshold", 30.0),
        ("memory_threshold", 50.0),
    ]
    assert [each.name for each in dataclasses.fields(GPUInfo)][:11] == [
        "node_name",
        "gpu_index",
        "gpu_name",
        "memory_total_mb",
        "memory_used_mb",
        "memory_free_mb",
        "memory_usage_percent",
        "utilization_percent",
        "temperature_c",
        "is_allocatable",
        "has_metrics",
    ]
    assert [each.name for each in dataclasses.fields(NodeGPUSummary)][:7] == [
        "node_name",
        "total_gpus",
        "allocatable_gpus",
        "gpus_with_metrics",
        "avg_utilization",
        "avg_memory_usage",
        "idle_gpu_count",
    ]


def test_the_originals_constructors_work() -> None:
    info = GPUInfo("n", 0, "A100", 40960, 0, 40960, 0.0, 0, 40, True, True)

    assert NodeGPUSummary("n", 1, 1, [info], 0.0, 0.0, 1).gpus_with_metrics == [info]


def test_every_gpu_is_listed_with_what_its_agent_saw() -> None:
    cluster = cluster_of(seen("n1", (4_096, 12), FREE))

    first, second = get_cluster_gpu_status(cluster=cluster)

    assert (first.node_name, first.gpu_index, first.gpu_name) == ("n1", 0, "NVIDIA A100-40GB")
    assert (first.memory_total_mb, first.memory_used_mb, first.memory_usage_percent) == (40_960, 4_096, 10.0)
    assert (first.utilization_percent, first.has_metrics, first.age_s) == (12, True, 1.0)
    assert (second.uuid, second.state) == ("GPU-n1-1", "known-free")


def test_nodes_rank_by_idle_cards_then_by_utilisation() -> None:
    cluster = cluster_of(
        seen("few", FREE, BUSY), seen("busier", FREE, FREE, (0, 20)), seen("calm", FREE, FREE, FREE)
    )

    assert best(cluster) == "calm"
    assert get_node_gpu_summaries(cluster=cluster)["few"].idle_gpu_count == 1


@pytest.mark.parametrize(
    ("used", "util", "idle"),
    [
        pytest.param(20_479, 29, 1, id="just below both"),
        pytest.param(20_480, 0, 0, id="half of the memory"),
        pytest.param(0, 30, 0, id="30 percent"),
    ],
)
def test_idle_is_below_30_percent_and_below_half_of_the_memory(used: int, util: int, idle: int) -> None:
    cluster = cluster_of(seen("n1", (used, util)))

    assert get_node_gpu_summaries(cluster=cluster)["n1"].idle_gpu_count == idle


def test_a_node_without_metrics_and_without_gpu_pods_is_idle() -> None:
    cluster = cluster_of(unseen("n1", 8))

    summary = get_node_gpu_summaries(cluster=cluster)["n1"]

    assert (summary.idle_gpu_count, summary.unknown_gpu_count) == (8, 8)
    assert best(cluster, 8) == "n1"


# ── more of what the original got wrong ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"unschedulable": True}, id="cordoned"),
        pytest.param({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, id="not ready"),
        pytest.param({"taints": [{"key": "x", "effect": "NoSchedule"}]}, id="tainted"),
    ],
)
def test_a_node_that_takes_no_pods_never_wins(fields: dict[str, Any]) -> None:
    cluster = cluster_of(seen("closed", *([FREE] * 8), **fields), seen("open", *([FREE] * 4)))

    assert best(cluster) == "open"
    assert best(cluster, 8) is None
    summary = get_node_gpu_summaries(cluster=cluster)["closed"]
    assert (summary.schedulable, summary.allocatable_gpus, summary.idle_gpu_count) == (False, 0, 0)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ended_holds_nothing(phase: str) -> None:
    cluster = cluster_of(unseen("n1", 2), pods=(gpu_pod("p", "n1", 2, phase=phase),))

    assert get_node_gpu_summaries(cluster=cluster)["n1"].idle_gpu_count == 2


@pytest.mark.parametrize(
    ("parameters", "gpus"),
    [
        pytest.param({"tp-size": 2}, 2, id="tp-size"),
        pytest.param({"tp_size": 2}, 2, id="tp_size"),
        pytest.param({"tpsize": 2}, 2, id="tpsize"),
        pytest.param({"tensor-parallel-size": "2"}, 2, id="vLLM"),
        pytest.param({"--tensor-parallel-size": 2, "pipeline_parallel_size": 2}, 4, id="stages too"),
        pytest.param({"mem-fraction-static": 0.8}, 1, id="none"),
        pytest.param({}, 1, id="nothing"),
    ],
)
def test_every_spelling_of_tensor_parallelism_counts(parameters: dict[str, object], gpus: int) -> None:
    assert required_gpus(parameters) == gpus


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param({"tp-size": "many"}, id="a word"),
        pytest.param({"tp-size": 0}, id="none"),
        pytest.param({"tp-size": True}, id="true"),
        pytest.param({"tp-size": 2, "tensor_parallel_size": 4}, id="two that differ"),
    ],
)
def test_what_is_no_degree_is_refused(parameters: dict[str, object]) -> None:
    with pytest.raises(RequestError):
        required_gpus(parameters)


def test_many_questions_about_one_reading() -> None:
    """Whoever asks several things reads the cluster once; no process is started for any of them."""
    cluster = cluster_of(*(seen(f"n{number}", *([FREE] * 8)) for number in range(100)))

    assert len(get_cluster_gpu_status(cluster=cluster)) == 800
    assert best(cluster, 8) == "n0"


@pytest.mark.parametrize("resource", ["nvidia.com/gpumem", "nvidia.com/gpucores", "amd.com/gpu"])
def test_only_gpus_are_gpus(resource: str) -> None:
    assert get_node_gpu_summaries(cluster=cluster_of(plain("n1", "8", resource))) == {}


def test_devices_whose_cards_nothing_tells_are_unknown() -> None:
    cluster = cluster_of(plain("n1", "8"))

    summary = get_node_gpu_summaries(cluster=cluster)["n1"]

    assert (summary.total_gpus, summary.unknown_gpu_count, summary.idle_gpu_count) == (8, 8, 0)
    assert best(cluster) is None


def test_the_choice_is_told_in_the_originals_words() -> None:
    cluster = cluster_of(seen("host-10-97-65-155", *([FREE] * 8)))
    summary = get_node_gpu_summaries(cluster=cluster)["host-10-97-65-155"]

    assert describe_selection(1, summary) == [
        "=== GPU Node Selection ===",
        "Looking for node with 1 idle GPU(s)...",
        "Selected node 'host-10-97-65-155' for deployment:",
        "  - Allocatable GPUs: 8/8",
        "  - Idle GPUs: 8",
        "  - Avg Utilization: 0.0%",
        "  - Avg Memory Usage: 0.0%",
        "✓ Selected node: host-10-97-65-155",
        "==========================",
        "",
    ]


def test_an_average_that_nobody_told_is_unknown_and_no_node_is_the_schedulers_choice() -> None:
    summary = get_node_gpu_summaries(cluster=cluster_of(unseen("n1", 8)))["n1"]

    assert "  - Avg Utilization: unknown" in describe_selection(1, summary)
    assert "No suitable node; the scheduler decides" in describe_selection(1, None)


def test_a_model_is_asked_for_with_what_it_needs_at_that_degree() -> None:
    """8 billion parameters in 16 bits do not fit on 16 GiB, half of them do."""
    cluster = cluster_of(seen("n1", FREE, FREE, total=16_384))
    plan = Plan(context=4096)

    assert best(cluster, 1, model=LLAMA_8B, plan=plan) is None
    assert best(cluster, 2, model=LLAMA_8B, plan=plan) == "n1"


def test_cards_that_are_linked_are_preferred_for_several() -> None:
    """Both nodes have room; only on one of them two cards reach each other."""
    apart, pairs = seen("apart", FREE, FREE), seen("pairs", FREE, FREE, FREE, FREE)
    assert pairs.cards is not None
    for index, card in enumerate(pairs.cards):
        card["linkGroup"] = index // 2 * 2
    cluster = cluster_of(apart, pairs)

    assert best(cluster, 2, gpu_memory="20Gi") == "pairs"
    assert best(cluster, 4, gpu_memory="20Gi") == "pairs"  # no four are linked: any of one kind will do
    assert best(cluster, 8, gpu_memory="20Gi") is None


def test_a_model_may_be_a_file(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_bytes(msgspec.json.encode(LLAMA_8B))

    assert best(cluster_of(seen("n1", FREE)), model=config, plan=Plan(context=4096)) == "n1"


def test_what_a_model_needs_depends_on_the_card() -> None:
    """On a card of 70 GiB or more the engine takes larger batches, so more is asked for there."""
    cluster = cluster_of(seen("large", (59_000, 0), total=81_920), seen("small", (19_500, 0)))

    assert best(cluster, model=LLAMA_8B, plan=Plan(context=4096)) == "small"


@pytest.mark.parametrize(
    ("wishes", "field"),
    [
        pytest.param({"required_gpus": 3, "model": LLAMA_8B}, "--tp", id="a degree that cuts a head"),
        pytest.param({"model": LLAMA_8B, "gpu_memory": 1}, "gpu_memory", id="model and memory"),
        pytest.param({"model": {"model_type": "new"}}, "model_type", id="a model that is not understood"),
        pytest.param(
            {"required_gpus": 3, "model": LLAMA_8B, "plan": Plan(pp=2)}, "required_gpus", id="stages"
        ),
    ],
)
def test_a_wrong_model_is_refused(wishes: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        find_best_node_for_deployment(cluster=cluster_of(seen("n1", FREE)), **wishes)

    assert caught.value.field == field


# ── what else must hold ──────────────────────────────────────────────────────────────────────────


def test_an_old_look_is_no_metric() -> None:
    cluster = cluster_of(seen("n1", FREE), age_s=3_600)

    info = get_cluster_gpu_status(cluster=cluster)[0]

    assert (info.has_metrics, info.memory_used_mb, info.state, info.age_s) == (
        False,
        None,
        "unknown",
        3_600.0,
    )
    assert best(cluster) is None


def test_cards_of_two_kinds_do_not_serve_one_model() -> None:
    mixed = seen("n1", FREE, FREE)
    assert mixed.cards is not None
    mixed.cards[1]["totalMiB"] = 81_920

    assert best(cluster_of(mixed), 2) is None
    assert best(cluster_of(mixed), 2, gpu_memory=8_000) is None
    assert best(cluster_of(mixed), 1) == "n1"


@pytest.mark.parametrize(
    ("wishes", "field"),
    [
        pytest.param({"required_gpus": 0}, "required_gpus", id="no GPU"),
        pytest.param({"required_gpus": "two"}, "required_gpus", id="a word"),
        pytest.param({"utilization_threshold": 130.0}, "utilization_threshold", id="more than all"),
        pytest.param({"memory_threshold": -1.0}, "memory_threshold", id="less than nothing"),
        pytest.param({"gpu_memory": "lots"}, "gpu_memory", id="no amount"),
        pytest.param({"policy": "luck"}, "policy", id="no policy"),
    ],
)
def test_a_wrong_question_is_refused(wishes: dict[str, object], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        find_best_node_for_deployment(cluster=cluster_of(seen("n1", FREE)), **wishes)  # type: ignore[arg-type]

    assert caught.value.field == field


def test_without_a_cluster_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """The original returned an empty list, which reads as: there are no GPUs."""
    for variable in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    with pytest.raises(RequestError, match="no cluster is configured"):
        get_cluster_gpu_status()


LOADS = st.tuples(st.sampled_from([None, 0, 10_000, 30_000]), st.sampled_from([None, 0, 20, 80]))


@given(
    st.lists(st.lists(LOADS, min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=4),
    st.integers(1, 4),
)
def test_a_winner_has_as_many_idle_cards_as_required(
    nodes: list[list[tuple[int | None, int | None]]], pods: list[tuple[int, int]], required: int
) -> None:
    cluster = cluster_of(
        *(seen(f"n{number}", *loads) for number, loads in enumerate(nodes)),
        pods=tuple(
            gpu_pod(f"p{number}", f"n{where}", count)
            for number, (where, count) in enumerate(pods)
            if where < len(nodes)
        ),
    )
    chosen = best(cluster, required)
    summaries = get_node_gpu_summaries(cluster=cluster)

    enough = {name for name, each in summaries.items() if each.idle_gpu_count >= required}
    assert (chosen in enough) if enough else (chosen is None)
