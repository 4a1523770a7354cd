"""The answer that the LLM inference autotuner's dashboard reads."""

import builders
from scheduler.worlds import NOW, Door, cluster_of
from vramline.model.node import Taint
from vramline.scheduler.autotuner_status import tell_autotuner
from vramline.simulate.cluster import EmbeddedCluster

SEEN = {
    "memory_total_mb",
    "memory_used_mb",
    "memory_free_mb",
    "memory_usage_percent",
    "utilization_percent",
    "temperature_c",
}
ALWAYS = {"index", "node_name", "name", "capacity", "allocatable", "is_local", "has_metrics"}


def world() -> EmbeddedCluster:
    return cluster_of(
        builders.node("n1", builders.gpu("GPU-a", total=32_600), builders.gpu("GPU-b")),
        builders.node("n2", builders.gpu("GPU-c"), cordoned=True),
        GPU_a=builders.observation(6_000, at=NOW - 1, utilization_percent=45, temperature_c=51),
    )


def entries() -> dict[str, dict[str, object]]:
    found = tell_autotuner(world(), hostname="n1")["nodes"]
    assert isinstance(found, list)
    return {entry["uuid"]: entry for entry in found}


def test_it_is_served_where_the_dashboard_asks() -> None:
    answer = Door(world()).get("/api/dashboard/cluster-gpu-status").raise_for_status().json()

    assert (answer["available"], answer["mode"], answer["total_gpus"]) == (True, "cluster", 3)
    assert {"nodes", "total_allocatable_gpus", "local_hostname", "timestamp"} < answer.keys()


def test_a_card_that_was_seen_has_every_field() -> None:
    card = entries()["GPU-a"]

    assert card.keys() >= ALWAYS | SEEN
    assert (card["memory_used_mb"], card["memory_usage_percent"]) == (6_000, 18.4)
    assert (card["utilization_percent"], card["temperature_c"], card["is_local"]) == (45, 51, True)


def test_a_card_that_nobody_saw_has_no_figures_and_no_zeros() -> None:
    card = entries()["GPU-b"]

    assert card["has_metrics"] is False
    assert card.keys() & SEEN == set()


def test_what_is_held_or_closed_is_not_allocatable() -> None:
    cluster = world()
    cluster.fleet.adopt([builders.claim(1_000, gpu="GPU-b")])
    tainted = builders.node("n3", builders.gpu("GPU-d"), taints=(Taint("x", "", "NoSchedule"),))
    cluster.fleet.set_node(tainted)

    told = tell_autotuner(cluster)

    assert told["total_allocatable_gpus"] == 1
    assert [entry["allocatable"] for entry in told["nodes"]] == [1, 0, 0, 0]  # type: ignore[attr-defined]
