"""Pods that HAMi and KAI placed hold their memory in the live state, and give it back when they go."""

from typing import Any

import pytest

from kubernetes_builders import container, hami_card, node_object, pod_object, report
from vramline.model.claim import ClaimState
from vramline.model.node import ProblemKind
from vramline.model.rules import Rules
from vramline.scheduler.disagreements import find_disagreements
from vramline.scheduler.live import LiveState
from vramline.wire import keys
from vramline.wire.hami import encode_register, encode_register_as_commas

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z, when the reports of the builders were made
RUNNING = {"phase": "Running"}


def live_state(*, adopts_all: bool = True) -> LiveState:
    """A cluster that moves; by itself an annotation that anybody may write holds nothing."""
    return LiveState(Rules(), clock=lambda: NOW, adopts_all=adopts_all)


def hami_pod(uid: str, devices: str, mib: int, **meta: Any) -> Any:
    return pod_object(
        container(gpu=1, gpumem=mib),
        annotations={keys.HAMI_ALLOCATED: devices},
        meta={"name": uid, "uid": uid, **meta},
        status=RUNNING,
        nodeName="n1",
    )


def kai_pod(uid: str, group: str, mib: int) -> Any:
    return pod_object(
        annotations={keys.KAI_MEMORY: str(mib)},
        labels={keys.KAI_GROUP_LABEL: group},
        meta={"name": uid, "uid": uid},
        status=RUNNING,
        nodeName="n1",
    )


def reservation(group: str, card: str) -> Any:
    return pod_object(
        container(gpu=1),
        annotations={keys.KAI_RESERVED_UUID: card},
        labels={keys.KAI_APP_LABEL: "kai-resource-reservation", keys.KAI_GROUP_LABEL: group},
        meta={"name": f"reserve-{group}", "uid": f"reserve-{group}", "namespace": "kai-resource-reservation"},
        status=RUNNING,
        nodeName="n1",
    )


def held(live: LiveState, uid: str) -> list[tuple[str, int]]:
    return [(claim.gpu, claim.mib) for claim in live.fleet.ledger.of_pod(uid)]


@pytest.mark.parametrize("encode", [encode_register, encode_register_as_commas], ids=["json", "commas"])
def test_a_hami_pod_holds_what_its_annotation_says_in_either_encoding(encode: Any) -> None:
    live = live_state()
    live.set_node(node_object(annotations={keys.HAMI_REGISTER: encode([hami_card()])}))

    live.set_pod(hami_pod("u1", "GPU-a,NVIDIA,4000,20:;", 4_000))
    live.finish_listing_pods()

    assert held(live, "u1") == [("GPU-a", 4_000)]
    assert live.fleet.account("GPU-a").free_by_books == 32_600 - 100 - 4_000


def test_a_hami_pod_with_devices_is_adopted_even_where_annotations_alone_are_not_believed() -> None:
    live = live_state(adopts_all=False)
    live.set_node(node_object(annotations={keys.HAMI_REGISTER: encode_register([hami_card()])}))

    live.set_pod(hami_pod("u1", "GPU-a,NVIDIA,4000,20:;", 4_000))

    assert held(live, "u1") == [("GPU-a", 4_000)]


def test_a_kai_group_holds_nothing_where_annotations_alone_are_not_believed() -> None:
    live = live_state(adopts_all=False)
    live.set_node(node_object(allocatable={"nvidia.com/gpu": "1"}))
    live.set_report(report({"uuid": "GPU-A", "totalMiB": 32_600}))

    live.set_pod(kai_pod("u1", "group-1", 8_000))

    assert held(live, "u1") == []


def test_the_devices_of_all_containers_count() -> None:
    live = live_state()
    live.set_node(node_object(annotations={keys.HAMI_REGISTER: encode_register([hami_card()])}))

    live.set_pod(hami_pod("u1", "GPU-a,NVIDIA,4000,20:;GPU-a,NVIDIA,2000,10:;", 4_000))

    assert held(live, "u1") == [("GPU-a", 6_000)]


def test_a_hami_pod_that_comes_before_its_node_is_adopted_with_it() -> None:
    live = live_state()
    live.set_pod(hami_pod("u1", "GPU-a,NVIDIA,4000,20:;", 4_000))

    live.set_node(node_object(annotations={keys.HAMI_REGISTER: encode_register([hami_card()])}))

    assert held(live, "u1") == [("GPU-a", 4_000)]


def test_a_hami_pod_that_is_terminating_still_holds_its_memory() -> None:
    live = live_state()
    live.set_node(node_object(annotations={keys.HAMI_REGISTER: encode_register([hami_card()])}))

    live.set_pod(hami_pod("u1", "GPU-a,NVIDIA,4000,20:;", 4_000, deletionTimestamp="2026-01-01T00:00:00Z"))

    [claim] = live.fleet.ledger.of_pod("u1")
    assert (claim.mib, claim.state) == (4_000, ClaimState.RELEASING)


def test_a_hami_pod_that_is_gone_holds_nothing() -> None:
    live = live_state()
    live.set_node(node_object(annotations={keys.HAMI_REGISTER: encode_register([hami_card()])}))
    live.set_pod(hami_pod("u1", "GPU-a,NVIDIA,4000,20:;", 4_000))

    live.drop_pod("u1")

    assert held(live, "u1") == []


def test_a_hami_pod_is_no_disagreement_with_our_ledger() -> None:
    live = live_state()
    live.set_node(node_object(annotations={keys.HAMI_REGISTER: encode_register([hami_card()])}))
    live.set_pod(hami_pod("u1", "GPU-a,NVIDIA,4000,20:;", 4_000))
    live.finish_listing_pods()

    assert find_disagreements(live) == []


def test_a_hami_pod_on_a_card_that_is_not_there_freezes_its_node() -> None:
    live = live_state()
    live.set_node(node_object(annotations={keys.HAMI_REGISTER: encode_register([hami_card()])}))

    live.set_pod(hami_pod("u1", "GPU-gone,NVIDIA,4000,20:;", 4_000))

    node = live.fleet.node("n1")
    assert node is not None
    assert node.problem is not None
    assert node.problem.kind is ProblemKind.FROZEN


def test_a_kai_group_holds_memory_on_the_card_that_its_reservation_names() -> None:
    live = live_state()
    live.set_node(node_object(allocatable={"nvidia.com/gpu": "2"}))
    live.set_report(report({"uuid": "GPU-A", "totalMiB": 32_600}, {"uuid": "GPU-B", "totalMiB": 32_600}))

    live.set_pod(kai_pod("u1", "group-1", 8_000))
    live.set_pod(reservation("group-1", "GPU-B"))
    live.set_pod(kai_pod("u2", "group-1", 4_000))

    assert (held(live, "u1"), held(live, "u2")) == ([("GPU-B", 8_000)], [("GPU-B", 4_000)])
    assert held(live, "reserve-group-1") == []


def test_a_kai_group_that_nobody_reserved_stays_together() -> None:
    live = live_state()
    live.set_node(node_object(allocatable={"nvidia.com/gpu": "2"}))
    live.set_report(report({"uuid": "GPU-A", "totalMiB": 32_600}, {"uuid": "GPU-B", "totalMiB": 32_600}))

    live.set_pod(kai_pod("u1", "group-2", 8_000))
    live.set_pod(kai_pod("u2", "group-2", 4_000))

    [(card, _)], [(other, _)] = held(live, "u1"), held(live, "u2")
    assert card == other
