from typing import Any

import builders
from scheduler.worlds import NOW, Door, cluster_of, pod_body
from vramline.model.claim import ClaimState
from vramline.model.node import HostRoom
from vramline.model.observation import Observation
from vramline.model.pod import HostNeeds, Pod, PodPhase
from vramline.simulate.cluster import EmbeddedCluster

PRIORITY = 100


def seen(used: int = 0, *processes: Any) -> Observation:
    return builders.observation(used, *processes, at=NOW - 1)


def two_cards(*, cpu_milli: int | None = None) -> EmbeddedCluster:
    return cluster_of(
        builders.node("n", builders.gpu("GPU-a"), builders.gpu("GPU-b"), host=HostRoom(cpu_milli=cpu_milli)),
        builders.node("other"),
        GPU_a=seen(),
        GPU_b=seen(),
    )


def add(
    cluster: EmbeddedCluster,
    name: str,
    mib: int = 0,
    card: str = "a",
    *,
    priority: int = 0,
    phase: PodPhase = PodPhase.BOUND,
    cpu_milli: int = 0,
) -> None:
    """Put a pod on the node; without MiB it holds no GPU."""
    ask = builders.ask(mib, pod=f"ns/{name}") if mib else None
    cluster.add_pod(
        Pod(
            namespace="ns",
            name=name,
            uid=builders.uid_of(f"ns/{name}"),
            ask=ask,
            node="n",
            phase=phase,
            priority=priority,
            host=HostNeeds(cpu_milli=cpu_milli),
        )
    )
    if mib:
        state = ClaimState.RELEASING if phase is PodPhase.RELEASING else ClaimState.BOUND
        cluster.fleet.adopt([builders.claim(mib, f"ns/{name}", gpu=f"GPU-{card}", state=state)])


def call(
    cluster: EmbeddedCluster, victims: dict[str, Any], pod: dict[str, Any] | None = None
) -> dict[str, Any]:
    pod = pod or pod_body(8_000)
    pod["spec"]["priority"] = PRIORITY
    answer = Door(cluster).post("/preempt", {"Pod": pod, "NodeNameToMetaVictims": victims})
    assert answer.status_code == 200
    named: dict[str, Any] = answer.json()["NodeNameToMetaVictims"]
    return named


def meta(*names: str, violations: int = 0) -> dict[str, Any]:
    return {
        "Pods": [{"UID": builders.uid_of(f"ns/{name}")} for name in names],
        "NumPDBViolations": violations,
    }


def preempt(cluster: EmbeddedCluster, *proposed: str, pod: dict[str, Any] | None = None) -> list[str] | None:
    """Return whom Vramline would send away from node n; None: the node is left out."""
    named = call(cluster, {"n": meta(*proposed)}, pod)
    return [each["UID"].removeprefix("uid-ns/") for each in named["n"]["Pods"]] if "n" in named else None


def test_a_victim_that_makes_room_is_kept() -> None:
    cluster = two_cards()
    add(cluster, "p", 30_000, "a")
    add(cluster, "q", 30_000, "b", priority=PRIORITY)

    assert preempt(cluster, "p") == ["p"]


def test_a_victim_that_only_kube_scheduler_knows_is_taken_at_its_word() -> None:
    cluster = two_cards()
    cluster.fleet.adopt(
        [builders.claim(30_000, "ns/p", gpu="GPU-a"), builders.claim(30_000, "ns/q", gpu="GPU-b")]
    )

    assert preempt(cluster, "p") == ["p"]


def test_a_victim_on_the_wrong_card_is_spared_and_the_right_one_named() -> None:
    cluster = two_cards()
    add(cluster, "small", 1_000, "a")
    add(cluster, "important", 29_000, "a", priority=PRIORITY)
    add(cluster, "right", 30_000, "b", priority=5)

    assert preempt(cluster, "small") == ["right"]


def test_a_victim_without_a_gpu_was_proposed_for_a_reason_and_goes_too() -> None:
    cluster = two_cards()
    add(cluster, "p", 30_000, "a")
    add(cluster, "q", 30_000, "b", priority=1)
    add(cluster, "cpu", cpu_milli=500)

    assert preempt(cluster, "cpu") == ["cpu", "p"]


def test_a_victim_whose_cpu_the_pod_needs_is_not_spared() -> None:
    cluster = two_cards(cpu_milli=1_000)
    add(cluster, "busy", 1_000, "a", cpu_milli=900)
    add(cluster, "important", 29_000, "a", priority=PRIORITY)
    add(cluster, "right", 30_000, "b", priority=5)
    pod = pod_body(8_000)
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "500m"}}

    assert preempt(cluster, "busy", pod=pod) == ["right", "busy"]


def test_the_most_important_victim_comes_first() -> None:
    cluster = two_cards()
    for name, priority in (("p", 1), ("q", 3), ("r", 2)):
        add(cluster, name, 10_000, "a", priority=priority)
    add(cluster, "x", 30_000, "b", priority=PRIORITY)

    assert preempt(cluster, "p", pod=pod_body(32_000)) == ["q", "r", "p"]


def test_a_node_is_left_out_where_only_equally_important_pods_could_make_room() -> None:
    cluster = two_cards()
    add(cluster, "small", 1_000, "a")
    add(cluster, "p", 29_000, "a", priority=PRIORITY)
    add(cluster, "q", 30_000, "b", priority=PRIORITY + 1)

    assert preempt(cluster, "small") is None
    assert preempt(cluster, "p") is None


def test_a_node_without_cards_or_that_nobody_knows_is_left_out() -> None:
    assert call(two_cards(), {"other": meta("p"), "elsewhere": meta("p")}) == {}


def test_memory_that_no_victim_holds_stays_taken() -> None:
    cluster = cluster_of(
        builders.node("n", builders.gpu("GPU-a")),
        GPU_a=seen(28_000, builders.process(28_000)),
    )
    add(cluster, "small", 4_000)

    assert preempt(cluster, "small") is None


def test_where_a_pod_leaves_anyway_it_alone_is_named() -> None:
    cluster = two_cards()
    add(cluster, "leaves", 30_000, "a", phase=PodPhase.RELEASING)
    add(cluster, "stays", 30_000, "b")

    assert preempt(cluster, "stays") == ["leaves"]


def test_where_only_a_more_important_pod_leaves_nobody_is_named() -> None:
    cluster = two_cards()
    add(cluster, "leaves", 30_000, "a", phase=PodPhase.RELEASING, priority=PRIORITY)
    add(cluster, "stays", 30_000, "b")

    assert preempt(cluster, "stays") is None


def test_what_kube_scheduler_needs_goes_although_memory_is_free() -> None:
    cluster = two_cards()
    add(cluster, "p", 1_000)

    assert preempt(cluster, "p") == ["p"]


def test_violated_budgets_are_counted_for_kept_victims_only() -> None:
    cluster = two_cards()
    add(cluster, "small", 1_000, "a")
    add(cluster, "important", 29_000, "a", priority=PRIORITY)
    add(cluster, "right", 30_000, "b", priority=5)

    kept = call(cluster, {"n": meta("right", violations=1)})
    spared = call(cluster, {"n": meta("small", violations=1)})

    assert (kept["n"]["NumPDBViolations"], spared["n"]["NumPDBViolations"]) == (1, 0)


def test_thirty_nodes_with_the_least_harm_are_enough() -> None:
    names = [f"n{number:02}" for number in range(40)]
    cluster = cluster_of(*(builders.node(name, builders.gpu(f"GPU-{name}")) for name in names))
    cluster.fleet.adopt([builders.claim(30_000, f"ns/{name}", gpu=f"GPU-{name}") for name in names])

    named = call(cluster, {name: meta(name, violations=int(name < "n05")) for name in names})

    assert sorted(named) == names[5:35]


def test_preempting_changes_nothing() -> None:
    cluster = two_cards()
    add(cluster, "p", 30_000, "a")
    add(cluster, "q", 30_000, "b")
    before = (cluster.fleet.generation, cluster.fleet.account("GPU-a"))

    preempt(cluster, "p")

    assert (cluster.fleet.generation, cluster.fleet.account("GPU-a")) == before


def test_victims_for_a_pod_without_a_gpu_request_are_left_as_they_are() -> None:
    victims = {"n": meta("p", violations=2), "elsewhere": meta()}

    assert call(two_cards(), victims, pod_body(None)) == victims
