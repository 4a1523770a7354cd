"""What the metrics say is what the memory law says."""

from collections import defaultdict

from builders import claim, gpu, node, observation, process
from vramline.model.claim import ClaimState
from vramline.model.rules import Rules
from vramline.scheduler.figures import count_figures
from vramline.simulate.cluster import EmbeddedCluster
from vramline.telemetry.metrics import Gauge


def cluster() -> EmbeddedCluster:
    made = EmbeddedCluster(Rules(), clock=lambda: 100.0)
    made.set_node(node("n1", gpu("GPU-a"), gpu("GPU-b")))
    made.set_node(node("cpu"))
    made.observe("GPU-a", observation(30_000, process(20_000, "ns/p"), process(10_000)))
    made.fleet.adopt([claim(8_000, "ns/p", state=ClaimState.RELEASING)])
    return made


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


def test_nodes_claims_and_the_self_check_are_counted() -> None:
    found = {(sample.gauge, sample.labels): sample.value for sample in count_figures(cluster())}

    assert found[Gauge.NODES, ("usable",)] == found[Gauge.NODES, ("without GPUs",)] == 1
    assert found[Gauge.CLAIMS, ("Releasing",)] == 1
    assert (found[Gauge.DISAGREEMENTS, ()], found[Gauge.LEADING, ()]) == (0, 1)
