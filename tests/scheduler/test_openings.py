"""Machines whose GPU takes from their memory, as a scheduler's live state counts them."""

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetes_builders import container, node_object, pod_object, report
from scheduler.memory_store import MemoryStore
from vramline.decide.whatif import copy_without_pods
from vramline.model.claim import Claim
from vramline.model.ledger import Reservation
from vramline.model.reason import CODE_OF, FITS, Reason
from vramline.model.rules import Rules
from vramline.scheduler.commit import Committer
from vramline.scheduler.following_cards import decide_among_cards
from vramline.scheduler.live import LiveState
from vramline.scheduler.openings import refuse_hosts
from vramline.units import Mib
from vramline.wire import keys
from vramline.wire.kubernetes import PodObject

CARD = {"uuid": "GPU-1", "totalMiB": 32_000, "reservedMiB": 1_000, "unified": True}


def pod(name: str, *, vram: int = 0, memory: int = 0, node: str | None = None) -> PodObject:
    annotations = {keys.KAI_MEMORY: str(vram)} if vram else {}
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    asked = container(requests={"memory": f"{memory}Mi"} if memory else {})
    return pod_object(asked, annotations=annotations, meta=meta, **({"nodeName": node} if node else {}))


def board(*pods: PodObject, allocatable: str = "40000Mi") -> LiveState:
    live = LiveState(Rules(), clock=lambda: 100.0)
    live.set_report(report(CARD))
    live.set_node(node_object(allocatable={"nvidia.com/gpu": "1", "memory": allocatable}))
    for each in pods:
        live.set_pod(each)
    return live


def test_a_pod_without_a_gpu_holds_what_it_requests_while_it_is_there() -> None:
    live = board()
    before = live.fleet.account("GPU-1").free

    live.set_pod(pod("database", memory=10_000, node="n1"))
    assert live.fleet.account("GPU-1").free == before - 10_000

    live.drop_pod("uid-database")
    assert live.fleet.account("GPU-1").free == before


def test_pods_that_were_there_before_the_node_are_counted() -> None:
    live = LiveState(Rules(), clock=lambda: 100.0)
    live.set_pod(pod("database", memory=10_000, node="n1"))
    live.set_report(report(CARD))
    live.set_node(node_object(allocatable={"nvidia.com/gpu": "1"}))

    assert live.fleet.account("GPU-1").requested == 10_000


def test_what_kubelet_keeps_of_the_machine_is_kept_from_the_gpu() -> None:
    assert board(allocatable="30000Mi").fleet.account("GPU-1").usable == 30_000
    assert board(allocatable="31500Mi").fleet.account("GPU-1").usable == 31_000


def test_filter_refuses_a_gpu_pod_whose_memory_request_is_not_left_beside_the_claims() -> None:
    live = board(pod("database", memory=30_000, node="n1"), pod("fits", vram=100), pod("large", vram=100))
    live.set_pod(pod("large", vram=100, memory=2_000))

    codes = {name: refuse_hosts(live, None, live.pods[f"uid-{name}"]) for name in ("fits", "large")}

    assert codes["fits"] is None or codes["fits"].tolist() == [FITS]
    assert codes["large"] is not None
    assert codes["large"].tolist() == [CODE_OF[Reason.INSUFFICIENT_MEMORY]]


def test_bind_refuses_it_too_and_writes_nothing() -> None:
    store = MemoryStore(Random(1))
    live = board(pod("database", memory=30_000, node="n1"))
    store.create_pod(pod("large", vram=100, memory=2_000))
    live.set_pod(store.pods["uid-large"])
    committer = Committer(live, store, lambda: 1)

    outcome = asyncio.run(committer.bind("uid-large", "n1"))

    assert "InsufficientMemory" in outcome.refused
    assert store.writes == 0


def test_who_leaves_takes_claim_and_request_along() -> None:
    """Both are one memory: a victim of preemption makes room for the greater of them."""
    store = MemoryStore(Random(1))
    store.create_pod(pod("victim", vram=4_000, memory=9_000))
    live = board()
    store.watch(live)
    committer = Committer(live, store, lambda: 1)
    empty = live.fleet.account("GPU-1").free
    assert asyncio.run(committer.bind("uid-victim", "n1")).refused == ""
    store.deliver(live)
    assert live.fleet.account("GPU-1").free == empty - 9_000

    left = copy_without_pods(live.fleet, "n1", ["uid-victim"])

    assert left.account("GPU-1").free == empty


@pytest.mark.parametrize(
    ("memory", "fits"),
    [
        pytest.param(20_000, True, id="as much as the claim"),
        pytest.param(30_950, False, id="more than there is"),
    ],
)
def test_a_pod_is_not_in_its_own_way_when_its_cards_are_judged_again(memory: int, *, fits: bool) -> None:
    live = board(pod("p", vram=20_000, memory=memory))
    claim = Claim(pod_uid="uid-p", pod="ns/p", gpu="GPU-1", mib=Mib(20_000), epoch=1)
    live.hold(Reservation(node="n1", claims=(claim,)))

    decision = decide_among_cards(live, live.pods["uid-p"], "n1", frozenset({"GPU-1"}))

    assert decision is not None
    assert (decision.placement is not None) is fits


@given(
    st.lists(st.tuples(st.integers(1, 20_000), st.integers(0, 20_000)), min_size=1, max_size=6),
    st.integers(1, 2),
    st.integers(0, 2**32),
)
def test_gpu_pods_that_are_bound_at_once_do_not_take_the_same_memory(
    pods: list[tuple[int, int]], leaders: int, seed: int
) -> None:
    """Each holds the greater of its claim and its request, from the moment it is promised anything."""
    store = MemoryStore(Random(seed))
    for number, (vram, memory) in enumerate(pods):
        store.create_pod(pod(f"p{number}", vram=vram, memory=memory))
    boards = [board() for _ in range(leaders)]
    for live in boards:
        store.watch(live)
    everyone = [
        Committer(live, store, lambda epoch=epoch: epoch + 1, apart_s=0.0)  # type: ignore[misc]
        for epoch, live in enumerate(boards)
    ]

    async def bind_all() -> None:
        uids = [f"uid-p{number}" for number in range(len(pods))]
        await asyncio.gather(*(each.bind(uid, "n1") for uid in uids for each in everyone))

    asyncio.run(bind_all())  # no watch tells anything meanwhile

    promised = {claim.pod_uid for claim in store.ledgers["n1"].claims} if store.ledgers else set()
    held = sum(max(each) for number, each in enumerate(pods) if f"uid-p{number}" in promised)
    assert held <= 31_000 - 100
    assert {uid for uid, each in store.pods.items() if each.spec and each.spec.node_name} <= promised
