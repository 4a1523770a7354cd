"""The twenty defects of the original, B1 to B20: its own inputs, and the right answer to each.

One row is one question; a defect with several faces has several. None of the twenty is left out.
"""

import ast
import re
from collections.abc import Callable
from typing import Any

import pytest

from house.tree import SOURCE, python_files
from inference.clusters import GpuNode, cluster_of, gpu_pod, plain, promised, seen, unseen
from inference.models import LLAMA_8B
from vramline.inference import (
    GpuCluster,
    find_best_node_for_deployment,
    get_cluster_gpu_status,
    get_node_gpu_summaries,
)
from vramline.inference.estimate import Plan
from vramline.inference.gpu_info import NodeGPUSummary
from vramline.inference.parallelism import names_parallelism, required_gpus
from vramline.model.pod import HostNeeds
from vramline.wire.ome_v1beta1 import ChosenNode, ServiceWish, write_inference_service

FREE, BUSY = (0, 0), (38_000, 97)
READY = {"models.ome.io/clusterbasemodel.llama": "Ready"}
CORDONED: dict[str, Any] = {"unschedulable": True}
NOT_READY: dict[str, Any] = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
TAINTED: dict[str, Any] = {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}
LEAVING: dict[str, Any] = {"meta": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}


def best(cluster: GpuCluster, required: int | str = 1, *thresholds: float, **wishes: Any) -> str | None:
    return find_best_node_for_deployment(required, *thresholds, cluster=cluster, **wishes)


def of(cluster: GpuCluster, node: str) -> NodeGPUSummary:
    return get_node_gpu_summaries(cluster=cluster)[node]


def idle(cluster: GpuCluster, node: str) -> int:
    return of(cluster, node).idle_gpu_count


def full_cluster() -> GpuCluster:
    nodes = [unseen(f"n{number}", 8) for number in range(50)]
    return cluster_of(*nodes, pods=tuple(gpu_pod(f"p{number}", f"n{number}", 8) for number in range(50)))


def unseen_and_full() -> GpuCluster:
    return cluster_of(unseen("unseen", 8), seen("seen", *([FREE] * 4)), pods=(gpu_pod("p", "unseen", 8),))


def closed_and_open(**fields: Any) -> GpuCluster:
    return cluster_of(seen("closed", *([FREE] * 8), **fields), seen("open", *([FREE] * 4)))


def with_room(name: str, cpu: str, memory: str) -> GpuNode:
    return seen(name, FREE, FREE, allocatable={"cpu": cpu, "memory": memory})


def affinity_of(node: ChosenNode) -> dict[str, Any]:
    wish = ServiceWish(name="s", namespace="n", model="m", runtime="r", gpus=1, node=node)
    found: dict[str, Any] = write_inference_service(wish)["spec"]["engine"]["affinity"]["nodeAffinity"]  # type: ignore[index]
    return found["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]  # type: ignore[no-any-return]


def modules_of_inference() -> set[str]:
    """Every module that the room imports, by its first name."""
    found: set[str] = set()
    for file in python_files(SOURCE / "inference"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {each.name.partition(".")[0] for each in node.names}
            if isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    return found


def row(name: str, question: Callable[[], object], right: object) -> Any:
    return pytest.param(question, right, id=name)


DEFECTS = [
    row("B1 unknown is not idle", lambda: idle(unseen_and_full(), "unseen"), 0),
    row("B1 unknown never beats known", lambda: best(unseen_and_full()), "seen"),
    row("B1 assumed never beats seen", lambda: best(cluster_of(unseen("a", 8), seen("b", FREE))), "b"),
    row(
        "B1 assumed where nothing was seen", lambda: best(cluster_of(unseen("a", 8), seen("b", FREE)), 2), "a"
    ),
    row("B2 what pods ask for is not free", lambda: {idle(full_cluster(), f"n{n}") for n in range(50)}, {0}),
    row("B2 a full cluster is the scheduler's", lambda: best(full_cluster()), None),
    row(
        "B3 one busy card beside seven free ones",
        lambda: idle(cluster_of(seen("n1", *([FREE] * 5), BUSY, FREE, FREE)), "n1"),
        7,
    ),
    row(
        "B3 the busy one is the one that is busy",
        lambda: [
            card.gpu_index
            for card in get_cluster_gpu_status(
                cluster=cluster_of(seen("n1", *([FREE] * 5), BUSY, FREE, FREE))
            )
            if card.state == "known-busy"
        ],
        [5],
    ),
    row(
        "B4 averages are over all cards",
        lambda: of(cluster_of(seen("n1", (40_960, 80), *([FREE] * 7))), "n1").avg_utilization,
        10.0,
    ),
    row(
        "B5 a field that is not told makes no idle card",
        lambda: best(cluster_of(seen("silent", (39_000, None)), seen("known", (400, 1)))),
        "known",
    ),
    row(
        "B5 little memory and no utilisation is unknown",
        lambda: get_cluster_gpu_status(cluster=cluster_of(seen("n1", (100, None))))[0].state,
        "unknown",
    ),
    row("B6 both thresholds by default", lambda: best(cluster_of(seen("n1", (15_000, 25)))), "n1"),
    row("B6 threshold of utilisation", lambda: best(cluster_of(seen("n1", (15_000, 25))), 1, 20.0), None),
    row("B6 threshold of memory", lambda: best(cluster_of(seen("n1", (15_000, 25))), 1, 30.0, 30.0), None),
    row("B7 nothing idle is nobody's pin", lambda: best(cluster_of(seen("n1", (40_000, 99)))), None),
    row("B8 cordoned", lambda: best(closed_and_open(**CORDONED)), "open"),
    row("B8 not ready", lambda: best(closed_and_open(**NOT_READY)), "open"),
    row("B8 tainted", lambda: best(closed_and_open(**TAINTED)), "open"),
    row("B8 cordoned, even if alone enough", lambda: best(closed_and_open(**CORDONED), 8), None),
    row("B8 a tolerated taint", lambda: best(closed_and_open(**TAINTED), 8, tolerations=["gpu"]), "closed"),
    row("B9 sliced 100 times", lambda: of(cluster_of(unseen("n1", 1, devices=100)), "n1").total_gpus, 1),
    row("B9 is not four cards", lambda: best(cluster_of(unseen("n1", 1, devices=100)), 4), None),
    row(
        "B10 a finished pod holds nothing",
        lambda: idle(cluster_of(unseen("n1", 2), pods=(gpu_pod("p", "n1", 2, phase="Succeeded"),)), "n1"),
        2,
    ),
    row(
        "B10 a terminating pod holds its cards",
        lambda: idle(cluster_of(unseen("n1", 2), pods=(gpu_pod("p", "n1", 2, **LEAVING),)), "n1"),
        0,
    ),
    row(
        "B10 a pod that is nowhere holds nothing",
        lambda: best(cluster_of(unseen("n1", 2), pods=(gpu_pod("p", None, 2, phase="Pending"),)), 2),
        "n1",
    ),
    row("B11 a number in quotes", lambda: best(cluster_of(seen("n1", *([FREE] * 4))), "4"), "n1"),
    row("B11 in parameters", lambda: required_gpus({"tp-size": "4"}), 4),
    row("B12 vLLM's spelling", lambda: required_gpus({"tensor-parallel-size": 4}), 4),
    row(
        "B12 the seed's spellings",
        lambda: [required_gpus({k: 2}) for k in ("tp-size", "tp_size", "tpsize")],
        [2] * 3,
    ),
    row(
        "B12 without a degree the runtime's counts",
        lambda: names_parallelism({"mem-fraction-static": 0.8}),
        False,
    ),
    row("B12 stages count too", lambda: required_gpus({"tp": 2, "pipeline-parallel-size": "2"}), 4),
    row(
        "B13 no process for any question",
        lambda: modules_of_inference() & {"subprocess", "pty", "multiprocessing"},
        set(),
    ),
    row(
        "B14 what was promised a moment ago is not idle",
        lambda: best(promised(cluster_of(seen("n1", FREE)), "GPU-n1-0", 30_000)),
        None,
    ),
    row(
        "B14 the second caller gets what is left",
        lambda: best(
            promised(cluster_of(seen("n1", FREE), seen("n2", FREE)), "GPU-n1-0", 30_000), gpu_memory="30Gi"
        ),
        "n2",
    ),
    row(
        "B15 a pin is by the label's own value",
        lambda: affinity_of(ChosenNode("n1", "ip-10-0-0-1", pinned=True)),
        {
            "matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["ip-10-0-0-1"]}
            ]
        },
    ),
    row(
        "B15 or by the node's name where there is no label",
        lambda: affinity_of(ChosenNode("n1", "", pinned=True)),
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
    ),
    row(
        "B16 the model is there",
        lambda: best(
            cluster_of(seen("bare", FREE, FREE), seen("ready", FREE, labels=READY)), node_selector=READY
        ),
        "ready",
    ),
    row(
        "B16 CPU",
        lambda: best(
            cluster_of(with_room("small", "2", "64Gi"), with_room("large", "32", "64Gi")),
            host=HostNeeds(cpu_milli=8_000),
        ),
        "large",
    ),
    row(
        "B16 memory of the host",
        lambda: best(
            cluster_of(with_room("small", "32", "8Gi"), with_room("large", "32", "64Gi")),
            host=HostNeeds(memory_bytes=32 * 2**30),
        ),
        "large",
    ),
    row(
        "B17 half a card is too little for a large model",
        lambda: best(cluster_of(seen("half", (20_000, 0))), gpu_memory="30Gi"),
        None,
    ),
    row(
        "B17 the rest of a busy card is enough for a small one",
        lambda: best(cluster_of(seen("busy", (24_000, 90))), gpu_memory=16_000),
        "busy",
    ),
    row(
        "B17 the model itself is the input",
        lambda: best(
            cluster_of(seen("half", (24_000, 0)), seen("whole", (0, 60))),
            model=LLAMA_8B,
            plan=Plan(context=8192),
        ),
        "whole",
    ),
    row(
        "B18 memory and cores are no GPUs",
        lambda: [
            get_node_gpu_summaries(cluster=cluster_of(plain("n1", "8", resource)))
            for resource in ("nvidia.com/gpumem", "nvidia.com/gpucores")
        ],
        [{}, {}],
    ),
    row(
        "B18 shared devices are no cards",
        lambda: best(cluster_of(plain("n1", "8", "nvidia.com/gpu.shared"))),
        None,
    ),
    row(
        "B19 no pod is entered where an agent speaks",
        lambda: {card.source for card in get_cluster_gpu_status(cluster=cluster_of(seen("n1", FREE, BUSY)))},
        {"GpuReport"},
    ),
    row(
        "B20 most idle first",
        lambda: best(cluster_of(seen("empty", *([FREE] * 8)), seen("begun", FREE, BUSY))),
        "empty",
    ),
    row(
        "B20 unless empty nodes are to stay whole",
        lambda: best(cluster_of(seen("empty", *([FREE] * 8)), seen("begun", FREE, BUSY)), policy="binpack"),
        "begun",
    ),
]


@pytest.mark.parametrize(("question", "right"), DEFECTS)
def test_the_defects_have_the_right_answer(question: Callable[[], object], right: object) -> None:
    assert question() == right


def test_no_defect_is_left_out() -> None:
    numbers = {int(re.findall(r"^B(\d+) ", str(each.id))[0]) for each in DEFECTS}

    assert numbers == set(range(1, 21))
