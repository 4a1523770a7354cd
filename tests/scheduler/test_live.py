"""The live state: what counts as holding memory, and what one bad object may harm."""

from typing import Any

import pytest

from kubernetes_builders import container, node_object, pod_object, report
from vramline.model.claim import Claim
from vramline.model.node import NodePool, ProblemKind
from vramline.model.rules import Rules
from vramline.scheduler.disagreements import find_disagreements
from vramline.scheduler.live import LiveState
from vramline.units import Mib
from vramline.wire import keys
from vramline.wire.kubernetes import PodObject
from vramline.wire.ledger_v1alpha1 import GpuLedger

CARD = {"uuid": "GPU-n1", "index": 0, "totalMiB": 32_600}
SEAL = '{"node": "n1", "gpus": [{"uuid": "GPU-n1", "mib": 8000}], "ledgerVersion": 1}'


def state(**options: Any) -> LiveState:
    live = LiveState(Rules(), clock=lambda: 1_000.0, **options)
    live.set_report(report(CARD))
    live.set_node(node_object("n1"))
    return live


def pod_on_node(
    *containers: dict[str, Any], annotations: dict[str, str] | None = None, **meta: Any
) -> PodObject:
    return pod_object(*containers, annotations=annotations, meta={"uid": "uid-1", **meta}, nodeName="n1")


def ledger(mib: int = 8_000, *, version: str = "5") -> GpuLedger:
    claim = Claim(pod_uid="uid-1", pod="ns/p", gpu="GPU-n1", mib=Mib(mib))
    return GpuLedger(node="n1", epoch=1, claims=(claim,), resource_version=version)


def held(live: LiveState) -> int:
    return live.fleet.account("GPU-n1").claimed


def problem(live: LiveState) -> ProblemKind | None:
    node = live.fleet.node("n1")
    assert node is not None
    return None if node.problem is None else node.problem.kind


@pytest.mark.parametrize(
    ("pod", "adopts_all", "mib"),
    [
        pytest.param(
            pod_on_node(annotations={keys.KAI_MEMORY: "30000"}), False, 0,
            id="an annotation that anybody can write blocks no card",
        ),
        pytest.param(
            pod_on_node(annotations={keys.KAI_MEMORY: "30000"}), True, 30_000,
            id="while a cluster moves here, it counts",
        ),
        pytest.param(pod_on_node(container(gpu=1)), False, 32_500, id="devices from kubelet count"),
        pytest.param(
            pod_on_node(annotations={keys.KAI_MEMORY: "8000", keys.ALLOCATION: SEAL}), False, 8_000,
            id="our own seal counts, ledger or not",
        ),
    ],
)  # fmt: skip
def test_what_a_pod_on_a_node_holds(pod: PodObject, adopts_all: bool, mib: int) -> None:
    live = state(adopts_all=adopts_all)
    live.set_pod(pod)

    assert held(live) == mib


@pytest.mark.parametrize(
    ("pod", "frozen"),
    [
        pytest.param(
            pod_on_node(annotations={keys.KAI_MEMORY: "8 GB"}),
            None,
            id="nonsense in a stranger's pod freezes nothing",
        ),
        pytest.param(
            pod_on_node(annotations={keys.ALLOCATION: "nonsense"}),
            ProblemKind.FROZEN,
            id="a seal of ours that cannot be read does",
        ),
    ],
)
def test_what_an_unreadable_pod_does_to_its_node(pod: PodObject, frozen: ProblemKind | None) -> None:
    live = state()
    live.set_pod(pod)

    assert problem(live) == frozen


def test_a_node_thaws_when_the_pod_can_be_read_again() -> None:
    live = state()
    live.set_pod(pod_on_node(annotations={keys.ALLOCATION: "nonsense"}))
    live.set_pod(pod_on_node(annotations={keys.KAI_MEMORY: "8000", keys.ALLOCATION: SEAL}))

    assert (problem(live), held(live)) == (None, 8_000)


def test_a_ledger_and_a_seal_that_disagree_freeze_the_node_and_hold_the_most() -> None:
    live = state()
    live.set_ledger(ledger(9_000))
    live.set_pod(pod_on_node(annotations={keys.KAI_MEMORY: "8000", keys.ALLOCATION: SEAL}))

    assert (problem(live), held(live)) == (ProblemKind.FROZEN, 9_000)


def test_a_ledger_that_cannot_be_read_freezes_its_node_until_it_can() -> None:
    live = state()
    live.set_problem("n1", "GpuLedger", "GpuLedger n1: spec is no mapping")
    frozen = problem(live)
    live.set_problem("n1", "GpuLedger", None)

    assert (frozen, problem(live)) == (ProblemKind.FROZEN, None)


def test_an_older_ledger_from_a_lagging_watch_changes_nothing() -> None:
    live = state()
    live.set_ledger(ledger(version="7"))
    live.set_ledger(GpuLedger(node="n1", resource_version="6"))

    assert held(live) == 8_000


def test_a_claim_whose_pod_is_not_there_is_held_and_releasing_once_all_pods_are_known() -> None:
    live = state()
    live.set_ledger(ledger())
    before = live.fleet.account("GPU-n1").claimed_releasing
    live.finish_listing_pods()

    assert (before, live.fleet.account("GPU-n1").claimed_releasing, held(live)) == (0, 8_000, 8_000)


def test_a_pod_that_finished_holds_its_claim_until_the_card_shows_it_free() -> None:
    live = state()
    live.set_ledger(ledger())
    live.finish_listing_pods()
    seal = {keys.KAI_MEMORY: "8000", keys.ALLOCATION: SEAL}
    live.set_pod(
        pod_object(annotations=seal, meta={"uid": "uid-1"}, nodeName="n1", status={"phase": "Succeeded"})
    )

    assert live.fleet.account("GPU-n1").claimed_releasing == 8_000


def test_a_promise_on_a_node_that_the_pod_did_not_go_to_holds_nothing_and_is_overdue() -> None:
    live = state()
    live.set_ledger(ledger())
    live.set_pod(pod_object(annotations={keys.KAI_MEMORY: "8000"}, meta={"uid": "uid-1"}, nodeName="n2"))

    assert (held(live), live.overdue()) == (0, {"n1": {"uid-1"}})


def test_a_promise_is_overdue_once_its_pod_goes_elsewhere_however_often_it_was_looked_at_before() -> None:
    live = state()
    live.set_ledger(ledger())
    live.set_pod(pod_object(annotations={keys.KAI_MEMORY: "8000"}, meta={"uid": "uid-1"}))
    before = [live.overdue(), live.overdue()]
    live.set_pod(pod_object(annotations={keys.KAI_MEMORY: "8000"}, meta={"uid": "uid-1"}, nodeName="n2"))

    assert (before, live.overdue()) == ([{}, {}], {"n1": {"uid-1"}})
    assert live.overdue() == {"n1": {"uid-1"}}, "until the ledger says otherwise"
    live.set_ledger(GpuLedger(node="n1", epoch=1, resource_version="6"))
    assert live.overdue() == {}


def test_a_promise_to_a_pod_that_is_bound_is_kept() -> None:
    now = [1_000.0]
    live = LiveState(Rules(), clock=lambda: now[0])
    live.set_ledger(ledger())
    live.set_pod(pod_object(annotations={keys.KAI_MEMORY: "8000"}, meta={"uid": "uid-1"}, nodeName="n1"))
    now[0] = 2_000.0

    assert [live.promises_not_kept(), live.promises_not_kept()] == [[], []]


def test_a_promise_grows_old_however_often_its_waiting_pod_is_touched() -> None:
    now = [1_000.0]
    live = LiveState(Rules(), clock=lambda: now[0])
    live.set_ledger(ledger())
    for second in range(0, 61, 10):
        now[0] = 1_000.0 + second
        live.set_pod(
            pod_object(
                annotations={keys.KAI_MEMORY: "8000"},
                meta={"uid": "uid-1", "resourceVersion": str(second + 1)},
            )
        )

    assert [pod.uid for pod in live.promises_not_kept()] == ["uid-1"]


def test_only_the_nodes_of_the_pool_exist() -> None:
    live = LiveState(Rules(), clock=lambda: 1_000.0, pool=NodePool("example.com/pool", "gpu"))
    live.set_report(report(CARD))
    live.set_node(node_object("n1", labels={"example.com/pool": "gpu"}))
    inside = live.fleet.node("n1")
    live.set_node(node_object("n1", labels={"example.com/pool": "other"}))

    assert inside is not None
    assert live.fleet.node("n1") is None


def test_a_card_that_two_nodes_name_stays_with_the_first() -> None:
    live = state()
    live.set_report(report(CARD, node="n2"))
    live.set_node(node_object("n2"))
    second = live.fleet.node("n2")

    assert second is not None
    assert second.problem is not None
    assert (second.problem.kind, second.gpus) == (ProblemKind.INVENTORY_CONFLICT, ())
    assert problem(live) is None


def test_a_node_that_leaves_and_comes_back_finds_its_claims() -> None:
    live = state()
    live.set_ledger(ledger())
    live.drop_node("n1")
    live.set_node(node_object("n1"))

    assert held(live) == 8_000


def test_the_self_check_names_live_pods_without_a_claim() -> None:
    live = state()
    live.set_pod(pod_on_node(annotations={keys.KAI_MEMORY: "8000", keys.ALLOCATION: SEAL}))
    alone = find_disagreements(live)
    live.set_ledger(ledger())

    assert (alone, find_disagreements(live)) == (["ns/p"], [])


@pytest.mark.parametrize(
    "phases",
    [
        pytest.param([("", "Pending"), ("n1", "Pending")], id="bound"),
        pytest.param([("", "Pending"), ("n1", "Running")], id="bound and started, seen at once"),
        pytest.param([("", "Pending"), ("n1", "Pending"), ("n1", "Running")], id="bound, then started"),
        pytest.param([("", "Pending"), ("n1", "Running"), ("n1", "Succeeded")], id="over"),
    ],
)
def test_deriving_a_node_anew_says_the_same_of_a_pod_on_its_way(
    phases: list[tuple[str, str]],
) -> None:
    live = state()
    live.set_ledger(ledger())
    live.finish_listing_pods()
    for version, (node, phase) in enumerate(phases, start=10):
        seal = {keys.ALLOCATION: SEAL} if node else {}
        pod = pod_object(
            annotations={keys.KAI_MEMORY: "8000", **seal},
            meta={"uid": "uid-1", "resourceVersion": str(version)},
            status={"phase": phase, "startTime": "2026-01-01T00:00:00Z"},
            nodeName=node,
        )
        live.set_pod(pod)

    before = live.fleet.ledger.of_card("GPU-n1"), live.fleet.account("GPU-n1")
    live.set_problem("n1", "a report", "cannot be read")
    live.set_problem("n1", "a report", None)  # the whole node is derived anew
    assert (live.fleet.ledger.of_card("GPU-n1"), live.fleet.account("GPU-n1")) == before


@pytest.mark.parametrize(("cpu", "memory"), [("1T", "1Pi"), ("4000T", "4E")], ids=["much", "absurd"])
def test_pods_that_claim_to_need_more_than_any_machine_has_harm_nobody(cpu: str, memory: str) -> None:
    """Whoever may create a pod may put it on a node past every scheduler, with any request."""
    absurd = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    live = LiveState(Rules(), clock=lambda: 1_000.0)
    live.set_node(node_object("n1", allocatable={"cpu": "64", "memory": "256Gi", "pods": "110"}))
    for number in range(20):
        live.set_pod(pod_object(absurd, meta={"uid": f"uid-{number}"}, nodeName="n1"))

    live.set_node(node_object("n1", allocatable={"cpu": "32", "memory": "256Gi", "pods": "110"}))

    node = live.fleet.node("n1")
    assert node is not None
    assert node.problem is None
