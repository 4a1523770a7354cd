"""Where a model fits: always what `decide` says, and never a help that was not decided."""

from typing import Any

import msgspec
import pytest

from inference.models import LLAMA_8B, model_of
from kubernetes_builders import report_document
from simulate.clusters import Document, card, node, pod, run
from vramline.errors import RequestError
from vramline.inference.estimate import Plan
from vramline.inference.fit import Bound, FitQuestion, find_ways
from vramline.inference.fit_help import Help, find_help
from vramline.inference.quantization import quantise_on_load
from vramline.model.pod import HostNeeds, Toleration
from vramline.simulate.cluster import EmbeddedCluster

MODEL = model_of(LLAMA_8B, "llama")
SMALL = Plan(context=8192, concurrency=4)


def cluster_of(*documents: Document) -> EmbeddedCluster:
    result = run(*documents)
    assert result.problems == []
    return result.cluster


def question(plan: Plan = SMALL, **fields: Any) -> FitQuestion:
    return FitQuestion(model=MODEL, plan=plan, **fields)


def running(name: str, mib: int, where: str) -> Document:
    return pod(name, mib, nodeName=where, status={"phase": "Running"})


def test_every_degree_that_a_node_allows_is_tried() -> None:
    cluster = cluster_of(node("n1", 24_576, cards=2), node("n2", 24_576, cards=4))

    ways = [fit.way for fit in find_ways(question(), cluster)]

    assert [(way.tp, way.fits, way.nodes_that_fit) for way in ways] == [
        (1, True, 2),
        (2, True, 2),
        (4, True, 1),
    ]
    assert ways[2].nodes == ("n2",)
    assert len(ways[2].gpu_uuids) == 4


def test_each_kind_of_card_is_estimated_for_itself() -> None:
    """An engine takes larger batches on larger cards, so the same model needs more there."""
    cluster = cluster_of(node("n1", 24_576), node("n2", 81_559))

    small, large = (fit.way for fit in find_ways(question(), cluster))

    assert (small.card.total_mib, small.nodes) == (24_576, ("n1",))
    assert (large.card.total_mib, large.nodes) == (81_559, ("n2",))
    assert large.ask_mib > small.ask_mib


def test_cards_of_two_kinds_do_not_work_together() -> None:
    mixed = report_document(card("GPU-a", 24_576), card("GPU-b", 40_960), node="n1")
    cluster = cluster_of(mixed)

    ways = [fit.way for fit in find_ways(question(degrees=(2,)), cluster)]

    assert [way.fits for way in ways] == [False, False]


def test_cards_that_are_linked_are_taken_and_said_to_be() -> None:
    cards = [card(f"GPU-{index}", 24_576, index=index) for index in range(4)]
    for each, group in zip(cards, (0, 0, 2, 2), strict=True):
        each["linkGroup"] = group
    taken = running("other", 20_000, "n1")
    taken["metadata"]["annotations"] |= {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,20000,0:;"}
    cluster = cluster_of(node("n1", 24_576, cards=4), report_document(*cards, node="n1"), taken)

    alone, pair, _ = (fit.way for fit in find_ways(question(), cluster))

    assert (pair.gpu_uuids, pair.linked) == (("GPU-2", "GPU-3"), True)
    assert (pair.nodes, alone.linked) == (("n1",), None)


def test_memory_that_somebody_holds_is_not_there() -> None:
    cluster = cluster_of(node("n1", 24_576), running("other", 10_000, "n1"))

    way = find_ways(question(), cluster)[0].way

    assert (way.fits, way.reason) == (False, "InsufficientVram")
    assert "short by" in way.message


@pytest.mark.parametrize(
    ("fields", "host", "fits"),
    [
        pytest.param({"unschedulable": True}, HostNeeds(), False, id="cordoned"),
        pytest.param({"taints": [{"key": "gpu", "effect": "NoSchedule"}]}, HostNeeds(), False, id="tainted"),
        pytest.param(
            {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
            HostNeeds(tolerations=(Toleration("gpu", "Exists", "", ""),)),
            True,
            id="tolerated",
        ),
        pytest.param({}, HostNeeds(node_selector={"pool": "a"}), False, id="without the label"),
        pytest.param({"allocatable": {"memory": "8Gi"}}, HostNeeds(memory_bytes=2**36), False, id="RAM"),
    ],
)
def test_the_host_counts_too(fields: dict[str, Any], host: HostNeeds, fits: bool) -> None:
    cluster = cluster_of(node("n1", 40_960, **fields))

    assert find_ways(question(host=host), cluster)[0].way.fits is fits


def test_a_lower_bound_fits_where_the_high_one_does_not() -> None:
    cluster = cluster_of(node("n1", 22_000))

    fits = [find_ways(question(bound=bound), cluster)[0].way.fits for bound in (Bound.LOW, Bound.HIGH)]

    assert fits == [True, False]


def test_a_cluster_without_gpus_is_refused() -> None:
    with pytest.raises(RequestError, match="there is no GPU in this cluster"):
        find_ways(question(), cluster_of({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}))


def helps(asked: FitQuestion, cluster: EmbeddedCluster) -> list[Help]:
    return find_help(asked, cluster, find_ways(asked, cluster), most=20)


def test_a_shorter_context_is_the_longest_that_fits() -> None:
    cluster = cluster_of(node("n1", 24_576))
    asked = question(Plan(context=32_768, concurrency=2))

    found = next(each for each in helps(asked, cluster) if "context" in each.change)

    context = int(found.change["context"])
    assert found.sentence == f"fits on n1 if context 32,768 → {context:,}"
    for tokens, fits in ((context, True), (context + 256, False)):
        changed = msgspec.structs.replace(asked, plan=Plan(context=tokens, concurrency=2))
        assert find_ways(changed, cluster)[0].way.fits is fits


def test_another_degree_is_offered_where_one_was_asked_for() -> None:
    cluster = cluster_of(node("n1", 24_576, cards=4))

    found = helps(question(Plan(context=32_768, concurrency=4), degrees=(1,)), cluster)

    assert found[0].sentence == "fits on n1 at tp=2"


def test_the_pod_whose_end_would_be_enough_is_named() -> None:
    cluster = cluster_of(node("n1", 24_576), running("other", 10_000, "n1"))

    found = helps(question(), cluster)

    assert "fits on n1 if ns/other ends" in [each.sentence for each in found]


def test_releasing_memory_is_waited_for() -> None:
    leaving = pod(
        "leaving",
        10_000,
        meta={"deletionTimestamp": "2026-01-01T00:00:30Z"},
        nodeName="n1",
        status={"phase": "Running"},
    )
    cluster = cluster_of(node("n1", 24_576), leaving)

    assert "fits on n1 when ns/leaving has released 10,000 MiB" in [
        each.sentence for each in helps(question(), cluster)
    ]


@pytest.mark.parametrize(
    ("card_mib", "plan"),
    [
        pytest.param(24_576, Plan(context=32_768, concurrency=2), id="a little too much"),
        pytest.param(22_300, Plan(context=8192, concurrency=4), id="hardly too much"),
        pytest.param(16_384, Plan(context=2048, concurrency=1), id="too small for these weights"),
    ],
)
def test_every_offered_option_really_fits(card_mib: int, plan: Plan) -> None:
    cluster = cluster_of(node("n1", card_mib))
    found = helps(question(plan), cluster)

    assert found
    for each in found:
        if "cluster" not in each.change:
            changed = msgspec.structs.replace(plan, **options_of(each))
            assert find_ways(question(changed), cluster)[0].way.fits, each.sentence


def options_of(found: Help) -> dict[str, Any]:
    """What the plan of a help is."""
    change: dict[str, Any] = dict(found.change)
    if change.pop("enforce_eager", None):
        change["graphs"] = False
    if "quantization" in change:
        change["quantization"] = quantise_on_load(str(change["quantization"]))
    return change


def test_nothing_is_offered_to_a_model_that_fits() -> None:
    assert helps(question(), cluster_of(node("n1", 81_559))) == []


def test_nothing_is_offered_where_nothing_helps() -> None:
    assert helps(question(), cluster_of(node("n1", 2_000))) == []
