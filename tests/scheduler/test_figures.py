"""What the metrics say is what the memory law says."""

from collections import defaultdict
from itertools import groupby

import msgspec

from builders import ask, claim, gpu, node, observation, process, uid_of
from vramline.explain.cards import card_state
from vramline.explain.history import DecisionRecord, History, PodOutcome
from vramline.model.ask import Ask
from vramline.model.claim import ClaimState
from vramline.model.pod import Pod
from vramline.model.rules import Rules
from vramline.scheduler.figures import count_figures
from vramline.scheduler.hami_figures import count_hami_figures
from vramline.simulate.cluster import EmbeddedCluster
from vramline.telemetry.metrics import Gauge, HamiGauge


def cluster() -> EmbeddedCluster:
    made = EmbeddedCluster(Rules(), clock=lambda: 100.0)
    made.set_node(node("n1", gpu("GPU-a"), gpu("GPU-b")))
    made.set_node(node("cpu"))
    made.observe("GPU-a", observation(30_000, process(20_000, "ns/p"), process(10_000)))
    made.fleet.adopt([claim(8_000, "ns/p", state=ClaimState.RELEASING)])
    return made


def pending(made: EmbeddedCluster, wanted: Ask, *, name: str, age_s: float) -> Pod:
    key = f"ns/{name}"
    wanted = msgspec.structs.replace(wanted, pod=key, pod_uid=uid_of(key))
    pod = Pod(namespace="ns", name=name, uid=uid_of(key), ask=wanted, created_at=made.now() - age_s)
    made.add_pod(pod)
    return pod


def test_the_parts_of_a_card_add_up_and_what_nobody_saw_has_no_sample() -> None:
    parts: dict[str, dict[str, float]] = defaultdict(dict)
    for sample in count_figures(cluster()):
        if sample.gauge is Gauge.GPU_MIB:
            parts[sample.labels[1]][sample.labels[2]] = sample.value
    seen, unseen = parts["GPU-a"], parts["GPU-b"]

    assert seen["usable"] - seen["margin"] - seen["held"] - seen["unmanaged"] == seen["free"] == 2_500
    assert seen["releasing"] == 20_000
    assert "unmanaged" not in unseen
    assert "used" not in unseen


def test_the_parts_of_every_card_are_those_that_people_are_shown() -> None:
    made = cluster()
    made.set_node(node("n2", *(gpu(f"GPU-{number:04}", node="n2") for number in range(300))))
    for number in range(0, 300, 3):
        made.observe(f"GPU-{number:04}", observation(10 * number))
    found: dict[str, dict[str, float]] = defaultdict(dict)
    ages = {}
    for sample in count_figures(made):
        if sample.gauge is Gauge.GPU_MIB:
            found[sample.labels[1]][sample.labels[2]] = sample.value
        if sample.gauge is Gauge.OBSERVATION_AGE:
            ages[sample.labels[1]] = sample.value

    for uuid in made.fleet.columns.row_of:
        card = card_state(made.fleet, uuid, now=made.now(), max_age_s=made.rules_for(None).max_age_s)
        shown = {
            "total": card.total_mib,
            "usable": card.usable_mib,
            "margin": card.margin_mib,
            "held": card.held_mib,
            "releasing": card.releasing_mib,
            "reserved": card.reserved_mib,
            "unmanaged": card.unmanaged_mib,
            "used": card.used_mib,
            "free": card.free_mib,
        }
        account = made.fleet.account(uuid)
        if card.basis == "observed":
            shown |= {"drift": account.free_by_books - account.free, "ghost": 0}
        told = found[uuid]
        assert told == {part: mib for part, mib in shown.items() if mib is not None}
        assert ages.get(uuid) == card.observed_age_s


def test_what_processes_of_ended_pods_hold_is_counted() -> None:
    made = cluster()
    made.fleet.pod_ended(uid_of("ns/p"), at=5.0)
    found = {(sample.gauge, sample.labels): sample.value for sample in count_figures(made)}

    assert found[Gauge.GPU_MIB, ("n1", "GPU-a", "ghost")] == 20_000


def test_the_samples_of_a_metric_come_together() -> None:
    gauges = [sample.gauge for sample in count_figures(cluster())]

    assert len([gauge for gauge, _ in groupby(gauges)]) == len(set(gauges))


def test_nodes_claims_and_the_self_check_are_counted() -> None:
    found = {(sample.gauge, sample.labels): sample.value for sample in count_figures(cluster())}

    assert found[Gauge.NODES, ("usable",)] == found[Gauge.NODES, ("without GPUs",)] == 1
    assert found[Gauge.CLAIMS, ("Releasing",)] == 1
    assert (found[Gauge.DISAGREEMENTS, ()], found[Gauge.LEADING, ()]) == (0, 1)


def test_decisions_and_waiting_pods_are_counted_by_reason() -> None:
    made = cluster()
    history = History()
    for name, mib in (("large", 90_000), ("larger", 95_000)):
        pod = pending(made, ask(mib), name=name, age_s=300.0)
        outcome = made.place(pod.uid)
        assert outcome.explanation is not None
        record = DecisionRecord(
            at=100.0,
            pod=pod.key,
            pod_uid=pod.uid,
            outcome=PodOutcome.PENDING,
            explanation=outcome.explanation,
        )
        history.add(record)
    pending(made, ask(1), name="new", age_s=1.0)
    found = {(sample.gauge, sample.labels): sample.value for sample in count_figures(made, history)}

    assert found[Gauge.DECISIONS, ("Pending", "GpuTooSmall")] == 2
    assert found[Gauge.PENDING, ("GpuTooSmall",)] == 2
    assert found[Gauge.PENDING, ("",)] == 1
    assert found[Gauge.PENDING_OLDEST, ()] == 300.0


def test_hamis_names_tell_the_same_figures() -> None:
    found = {(sample.gauge, sample.labels): sample.value for sample in count_hami_figures(cluster())}
    device = ("vGPU", "n1", "GPU-a", "0", "")

    assert found[HamiGauge.MEMORY_LIMIT, device] == 32_600 * 2**20
    assert found[HamiGauge.HOST_MEMORY, device] == 30_000 * 2**20
    assert found[HamiGauge.SHARED_COUNT, device] == 1
    assert found[HamiGauge.POD_MEMORY, ("vGPU", "ns", "n1", "p", "0", "GPU-a")] == 8_000 * 2**20
    assert (HamiGauge.HOST_MEMORY, ("vGPU", "n1", "GPU-b", "1", "")) not in found
    assert all(len(labels) == len(gauge.value[2]) for gauge, labels in found)
