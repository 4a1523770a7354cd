"""The shape of `-o json` that scripts rely on."""

from typing import Any

import msgspec
import pytest

from simulate.clusters import card, node, pod, report, run
from vramline.simulate.report import report_run

_POD = {"pod", "status", "node", "gpus", "reason", "message", "warnings", "nodes"}
_NODE = {"node", "fits", "reason", "gpus"}
_NODE_GPU = {
    *("uuid", "reason", "ask_mib", "usable_mib", "held_mib", "releasing_mib"),
    *("unmanaged_mib", "margin_mib", "free_mib", "short_mib"),
}
_GPU = {
    *("node", "uuid", "model", "total_mib", "usable_mib", "held_mib", "releasing_mib"),
    *("unmanaged_mib", "margin_mib", "free_mib", "slots", "basis"),
}


def as_json(*documents: dict[str, Any], **options: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(report_run(run(*documents, **options))))


@pytest.fixture
def printed() -> Any:
    return as_json(
        node("n2", cards=2),
        node("n1", labels={"gpu.replicas": "100"}, allocatable={"nvidia.com/gpu": "100"}),
        report(card()),
        pod("fits", 8_000),
        pod("waits", 32_501),
        pod("bad", annotations={"gpu-memory": "x"}),
        pod("cpu", None),
    )


def test_all_promised_keys_are_there(printed: Any) -> None:
    assert printed.keys() >= {"pods", "gpus", "summary"}
    for each in printed["pods"]:
        assert each.keys() >= _POD
        for line in each["nodes"]:
            assert line.keys() >= _NODE
            assert all(found.keys() >= _NODE_GPU for found in line["gpus"])
    assert all(each.keys() >= _GPU for each in printed["gpus"])
    assert printed["summary"].keys() >= {"bound", "pending", "rejected"}


def test_lists_are_lists_and_an_unplaced_pod_is_on_no_node(printed: Any) -> None:
    pods = {each["pod"]: each for each in printed["pods"]}

    assert pods["ns/fits"]["gpus"] == [{"uuid": "GPU-a", "mib": 8000}]
    assert pods["ns/fits"]["reason"] is None
    assert pods["ns/fits"]["nodes"] == []
    assert (pods["ns/waits"]["node"], pods["ns/waits"]["gpus"], pods["ns/waits"]["warnings"]) == (
        None,
        [],
        [],
    )
    assert (pods["ns/bad"]["status"], pods["ns/bad"]["reason"]) == ("Rejected", "InvalidRequest")
    assert pods["ns/cpu"]["gpus"] == []


def test_the_arithmetic_of_a_miss_adds_up(printed: Any) -> None:
    (waits,) = (each for each in printed["pods"] if each["pod"] == "ns/waits")

    for line in waits["nodes"]:
        for found in line["gpus"]:
            free = (
                found["usable_mib"] - found["margin_mib"] - found["held_mib"] - (found["unmanaged_mib"] or 0)
            )
            assert found["free_mib"] == free
            assert found["short_mib"] == found["ask_mib"] - free


def test_cards_are_sorted_by_node_and_index(printed: Any) -> None:
    assert [each["uuid"] for each in printed["gpus"]] == ["GPU-a", "n2/gpu-0", "n2/gpu-1"]


def test_slots_are_null_without_replicas_and_unmanaged_is_null_without_a_look(printed: Any) -> None:
    shared, single, _ = printed["gpus"]

    assert (shared["slots"], shared["unmanaged_mib"], shared["basis"]) == (100, 0, "observed")
    assert (single["slots"], single["unmanaged_mib"], single["basis"]) == (None, None, "books")


def test_the_summary_counts_the_pods_of_this_run(printed: Any) -> None:
    assert printed["summary"] == {
        "bound": 2,
        "pending": 1,
        "rejected": 1,
        "running": 0,
        "releasing": 0,
        "finished": 0,
    }


def test_what_was_set_aside_is_in_the_report_too() -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}

    printed = as_json(node(), other, pod("bad", annotations={"gpu-memory": "x"}))

    assert printed["skipped"] == [{"where": "document 2", "kind": "ConfigMap"}]
    assert printed["problems"][0].startswith("Pod ns/bad: annotation gpu-memory")
    assert printed["now"] is None
