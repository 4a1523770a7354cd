from typing import Any

import builders
from scheduler.worlds import Door, cluster_of, pod_body
from vramline.simulate.cluster import EmbeddedCluster


def time_sliced() -> EmbeddedCluster:
    return cluster_of(builders.node("n1", builders.gpu("GPU-a", 32_600, slots=100)), builders.node("n2"))


def ask(cluster: EmbeddedCluster, question: object) -> dict[str, Any]:
    answer = Door(cluster).post("/api/v1/whatif", question)
    assert answer.status_code == 200
    told: dict[str, Any] = answer.json()
    return told


def test_four_of_five_pods_fit_on_a_card_that_is_advertised_a_hundred_times() -> None:
    told = ask(time_sliced(), {"pods": 5, "mib": 8_000})

    assert (told["asked"], told["fit"], told["by_node"]) == (5, 4, {"n1": 4})
    assert told["blocked"]["pods"] == 1
    assert told["blocked"]["explanation"]["reason"] == "InsufficientVram"
    assert "fits on n1 if the ask is ≤ 500 MiB" in [
        each["sentence"] for each in told["blocked"]["explanation"]["counterfactuals"]
    ]


def test_nothing_is_blocked_where_all_fit() -> None:
    told = ask(time_sliced(), {"mib": 8_000})

    assert (told["fit"], told["blocked"]) == (1, None)
    assert told["placements"] == [{"node": "n1", "gpus": [{"uuid": "GPU-a", "mib": 8_000, "cores": 0}]}]


def test_a_manifest_is_one_pod_with_all_its_wishes() -> None:
    told = ask(time_sliced(), pod_body(8_000, **{"nvidia.com__use_gputype": "h100"}))

    assert told["fit"] == 0
    assert told["blocked"]["explanation"]["reason"] == "WrongModel"


def test_a_manifest_of_a_pod_that_is_there_already_means_another_one_like_it() -> None:
    cluster = time_sliced()
    cluster.fleet.adopt([builders.claim(8_000, "ns/new")])

    assert ask(cluster, pod_body(8_000))["fit"] == 1


def test_asking_changes_nothing() -> None:
    cluster = time_sliced()
    before = (cluster.fleet.generation, cluster.fleet.ledger.version, cluster.fleet.account("GPU-a"))

    ask(cluster, {"pods": 4, "mib": 8_000})

    assert (cluster.fleet.generation, cluster.fleet.ledger.version, cluster.fleet.account("GPU-a")) == before


def test_a_placement_by_the_books_carries_its_warning() -> None:
    told = ask(time_sliced(), {"mib": 8_000})

    assert told["warnings"] == ["PlacedByBooks: no observation of GPU-a"]
