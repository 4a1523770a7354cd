"""Which pods a workload makes, beside those that are there."""

from typing import Any

import pytest

from kubernetes_builders import pod_document, workload_document
from vramline.wire.documents import read_documents
from vramline.wire.identity import key_of


def pods(*documents: dict[str, Any]) -> list[str]:
    found = read_documents(("f", each) for each in documents)
    assert found.problems == []
    return [key_of(pod.metadata) for pod in found.pods]


def owned(name: str, kind: str, owner: str, **fields: Any) -> dict[str, Any]:
    meta = {"name": name, "ownerReferences": [{"kind": kind, "name": owner, "controller": True}]}
    return pod_document(meta={**meta, **fields.pop("meta", {})}, **fields)


@pytest.mark.parametrize(
    ("kind", "spec", "count"),
    [
        pytest.param("Deployment", {}, 1, id="one by default"),
        pytest.param("Deployment", {"replicas": 3}, 3, id="three"),
        pytest.param("Deployment", {"replicas": 0}, 0, id="none"),
        pytest.param("StatefulSet", {"replicas": 2}, 2, id="a stateful set"),
        pytest.param("ReplicaSet", {"replicas": 2}, 2, id="a replica set"),
        pytest.param("Job", {}, 1, id="a job"),
        pytest.param("Job", {"parallelism": 4}, 4, id="a parallel job"),
        pytest.param("Job", {"parallelism": 4, "completions": 2}, 2, id="no more than completions"),
        pytest.param("Job", {"completions": 9}, 1, id="one after the other"),
        pytest.param("Job", {"parallelism": 4, "suspend": True}, 0, id="a suspended job"),
        pytest.param("Job", {"parallelism": 0}, 0, id="a job held at 0"),
    ],
)
def test_number_of_pods(kind: str, spec: dict[str, Any], count: int) -> None:
    assert pods(workload_document(kind, **spec)) == [f"ns/web-{n}" for n in range(count)]


def test_pods_look_like_the_template_and_are_as_old_as_the_workload() -> None:
    document = workload_document()
    document["metadata"]["creationTimestamp"] = "1970-01-01T00:00:05Z"
    pod = read_documents([("f", document)]).pods[0]

    assert pod.metadata.annotations == {"gpu-memory": "8000"}
    assert pod.metadata.creation_timestamp is not None
    assert [container.name for container in (pod.spec.containers if pod.spec else None) or ()] == ["main"]


def test_order_is_that_of_appearance() -> None:
    found = pods(pod_document(meta={"name": "a"}), workload_document(), pod_document(meta={"name": "b"}))

    assert found == ["ns/a", "ns/web-0", "ns/b"]


def test_pods_that_are_there_already_are_not_made_again() -> None:
    found = pods(
        workload_document(replicas=3),
        {
            **workload_document("ReplicaSet", "web-abc", replicas=3),
            "metadata": {
                "name": "web-abc",
                "namespace": "ns",
                "ownerReferences": [{"kind": "Deployment", "name": "web", "controller": True}],
            },
        },
        owned("web-abc-x", "ReplicaSet", "web-abc"),
        owned("web-abc-y", "ReplicaSet", "web-abc"),
    )

    assert found == ["ns/web-0", "ns/web-abc-x", "ns/web-abc-y"]


def test_a_replica_set_whose_deployment_is_not_there_makes_its_pods() -> None:
    document = workload_document("ReplicaSet", replicas=2)
    document["metadata"]["ownerReferences"] = [{"kind": "Deployment", "name": "gone", "controller": True}]

    assert pods(document) == ["ns/web-0", "ns/web-1"]


@pytest.mark.parametrize(
    ("kind", "fields", "made"),
    [
        pytest.param("StatefulSet", {}, [], id="a living pod"),
        pytest.param("StatefulSet", {"status": {"phase": "Failed"}}, ["ns/web-1"], id="a failed pod"),
        pytest.param(
            "StatefulSet",
            {"meta": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
            ["ns/web-1"],
            id="a dying pod",
        ),
        pytest.param("StatefulSet", {"status": {"phase": "Succeeded"}}, ["ns/web-1"], id="a pod that ended"),
        pytest.param("Job", {"status": {"phase": "Succeeded"}}, [], id="a job that is done"),
    ],
)
def test_which_pods_count_as_there(kind: str, fields: dict[str, Any], made: list[str]) -> None:
    found = pods(workload_document(kind), owned("web-0", kind, "web", **fields))

    assert [name for name in found if name != "ns/web-0"] == made


def test_ordinals_of_a_stateful_set_come_first() -> None:
    found = pods(workload_document("Deployment"), workload_document("StatefulSet", replicas=2))

    assert found == ["ns/web-2", "ns/web-0", "ns/web-1"]


def test_a_name_that_is_taken_is_skipped() -> None:
    assert pods(workload_document(), pod_document(meta={"name": "web-0"})) == ["ns/web-1", "ns/web-0"]
