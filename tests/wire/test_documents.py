"""From parsed documents to typed objects: kinds, lists, names, and what is set aside."""

import datetime as dt
from typing import Any

import pytest

from kubernetes_builders import container, node_document, pod_document, report_document, workload_document
from vramline.wire.documents import Manifests, read_documents, read_now

PLACE = "f.yaml, document 1"
LEDGER = {"apiVersion": "vramline.io/v1alpha1", "kind": "GpuLedger", "metadata": {"name": "n1"}}


def read(*documents: object) -> Manifests:
    return read_documents((f"f.yaml, document {n}", each) for n, each in enumerate(documents, start=1))


def problems(*documents: object) -> list[str]:
    return [str(problem) for problem in read(*documents).problems]


def names(manifests: Manifests) -> list[str | None]:
    return [pod.metadata.name for pod in manifests.pods]


def test_each_kind_finds_its_place() -> None:
    found = read(node_document(), pod_document(), report_document(), LEDGER, workload_document(replicas=2))

    assert [node.name for node in found.nodes] == ["n1"]
    assert [report.node for report in found.reports] == ["n1"]
    assert [ledger.node for ledger in found.ledgers] == ["n1"]
    assert names(found) == ["p", "web-0", "web-1"]
    assert (found.problems, found.skipped) == ([], [])


def test_an_empty_document_is_nothing() -> None:
    assert read(None) == Manifests()


def test_other_kinds_are_named_and_skipped() -> None:
    found = read(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}},
        {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "x"}},
    )

    assert found.skipped == [
        ("f.yaml, document 1", "Service"),
        ("f.yaml, document 2", "Job of batch.volcano.sh/v1alpha1"),
    ]


def test_a_list_holds_anything() -> None:
    found = read({"apiVersion": "v1", "kind": "List", "items": [node_document(), pod_document()]})

    assert (len(found.nodes), len(found.pods)) == (1, 1)


def test_items_of_a_typed_list_need_no_kind() -> None:
    bare = {key: value for key, value in pod_document().items() if key not in ("apiVersion", "kind")}

    assert names(read({"apiVersion": "v1", "kind": "PodList", "items": [bare]})) == ["p"]


def test_a_list_without_items_is_empty() -> None:
    assert read({"apiVersion": "v1", "kind": "List", "items": None}) == Manifests()


def test_a_kind_that_only_ends_like_a_list_is_an_object() -> None:
    assert read({"apiVersion": "x/v1", "kind": "AllowList"}).skipped == [(PLACE, "AllowList")]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param(
            "text",
            f"{PLACE} = 'text': is not a Kubernetes object;"
            " accepted: a mapping with apiVersion, kind and metadata",
            id="text",
        ),
        pytest.param(
            [],
            f"{PLACE}: is not a Kubernetes object; accepted: a mapping with apiVersion, kind and metadata",
            id="a list",
        ),
        pytest.param(
            {"kind": "Pod"},
            f"{PLACE}: apiVersion: is missing; accepted: every object says its apiVersion and kind",
            id="no apiVersion",
        ),
        pytest.param(
            {"apiVersion": "v1"},
            f"{PLACE}: kind: is missing; accepted: every object says its apiVersion and kind",
            id="no kind",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "a\nb"},
            f"{PLACE}: kind = 'a\\nb': is not one word; accepted: every object says its apiVersion and kind",
            id="a kind of two lines",
        ),
        pytest.param(
            {"apiVersion": 1, "kind": "Pod"},
            f"{PLACE}: apiVersion = 1: is not one word; accepted: every object says its apiVersion and kind",
            id="a number for apiVersion",
        ),
        pytest.param(
            {"kind": "List", "items": {}}, f"{PLACE}: items: must be a list", id="items are a mapping"
        ),
        pytest.param(
            {"kind": "List", "items": [{"apiVersion": "v1", "kind": "List", "items": []}, 7]},
            f"{PLACE}, item 2 = 7: is not a Kubernetes object;"
            " accepted: a mapping with apiVersion, kind and metadata",
            id="a number in a list",
        ),
        pytest.param(
            node_document(name=""),
            f"Node ({PLACE}): metadata.name: is missing; accepted: a name",
            id="a node without a name",
        ),
        pytest.param(
            pod_document(meta={"name": None}),
            f"Pod ({PLACE}): metadata.name: is missing; accepted: a name",
            id="a pod without a name",
        ),
        pytest.param(
            report_document(node=""),
            f"GpuReport ({PLACE}): metadata.name: is missing; accepted: a name",
            id="a report without a name",
        ),
        pytest.param(
            node_document(name="a\nb"),
            f"Node ({PLACE}): metadata.name = 'a\\nb': is not a name;"
            " accepted: up to 253 characters without white space or slash",
            id="a name of two lines",
        ),
        pytest.param(
            {**pod_document(), "metadata": "p"},
            f"Pod ({PLACE}): metadata = 'p': must be a mapping, not text",
            id="metadata is text",
        ),
        pytest.param(
            pod_document(annotations={"team": "a", "gpu-memory": 8000}),
            f"Pod ns/p ({PLACE}): metadata.annotations[gpu-memory] = 8000: must be text;"
            ' accepted: the value in quotes, "8000"',
            id="an annotation is a number",
        ),
        pytest.param(
            pod_document(annotations={"a": True}),
            f"Pod ns/p ({PLACE}): metadata.annotations[a] = True: must be text;"
            ' accepted: the value in quotes, "true"',
            id="an annotation is a boolean",
        ),
        pytest.param(
            pod_document(annotations={"gpu-fraction": 0.5}),
            f"Pod ns/p ({PLACE}): metadata.annotations[gpu-fraction] = 0.5: must be text;"
            ' accepted: the value in quotes, "0.5"',
            id="an annotation is a decimal",
        ),
        pytest.param(
            pod_document(annotations={"gpu-memory": None}),
            f"Pod ns/p ({PLACE}): metadata.annotations[gpu-memory]: must be text; accepted: text in quotes",
            id="an annotation is nothing",
        ),
        pytest.param(
            pod_document(meta={"annotations": {1: "x"}}),
            f"Pod ns/p ({PLACE}): metadata.annotations: has a key that must be text, not a whole number",
            id="the key of an annotation is a number",
        ),
        pytest.param(
            node_document(labels={"nvidia.com/gpu.count": 1}),
            f"Node n1 ({PLACE}): metadata.labels[nvidia.com/gpu.count] = 1: must be text;"
            ' accepted: the value in quotes, "1"',
            id="a label is a number",
        ),
        pytest.param(
            pod_document(container(limits={"nvidia.com/gpu": 1, "cpu": True})),
            f"Pod ns/p ({PLACE}): spec.containers[0].resources.limits[cpu] = True: must be a whole number or"
            " a number or text, not true or false",
            id="a limit is a boolean",
        ),
        pytest.param(
            pod_document(containers={}),
            f"Pod ns/p ({PLACE}): spec.containers: must be a list, not a mapping",
            id="containers are a mapping",
        ),
        pytest.param(
            pod_document(meta={"creationTimestamp": "today"}),
            f"Pod ns/p ({PLACE}): metadata.creationTimestamp = 'today': is not a point in time;"
            " accepted: RFC 3339 with a zone, such as 2026-01-01T00:00:00Z",
            id="a time in words",
        ),
        pytest.param(
            pod_document(meta={"deletionTimestamp": dt.date(2026, 1, 1)}),
            f"Pod ns/p ({PLACE}): metadata.deletionTimestamp = 2026-01-01: is not a point in time;"
            " accepted: RFC 3339 with a zone, such as 2026-01-01T00:00:00Z",
            id="a date",
        ),
        pytest.param(
            workload_document(replicas=-1),
            "Deployment ns/web: spec.replicas = -1: is not a believable number of pods;"
            " accepted: 0 to 1000000",
            id="negative replicas",
        ),
        pytest.param(
            workload_document(replicas=10**7),
            "Deployment ns/web: spec.replicas = 10000000: is not a believable number of pods;"
            " accepted: 0 to 1000000",
            id="ten million replicas",
        ),
        pytest.param(
            workload_document(replicas="three"),
            f"Deployment ns/web ({PLACE}): spec.replicas = 'three': must be a whole number, not text",
            id="replicas in words",
        ),
        pytest.param(
            workload_document(replicas=1.5),
            f"Deployment ns/web ({PLACE}): spec.replicas = 1.5: must be a whole number, not a number",
            id="half a replica",
        ),
        pytest.param(
            workload_document("Job", completions=-1),
            "Job ns/web: spec.completions = -1: is not a believable number of pods; accepted: 0 to 1000000",
            id="negative completions",
        ),
        pytest.param(
            {**workload_document(), "spec": {"replicas": 1}},
            f"Deployment ns/web ({PLACE}): spec: has no template",
            id="no template",
        ),
        pytest.param(
            {**workload_document(), "spec": None},
            f"Deployment ns/web ({PLACE}): spec: must be a mapping, not nothing",
            id="no spec",
        ),
        pytest.param(
            {**report_document(), "apiVersion": "vramline.io/v1"},
            f"GpuReport n1 ({PLACE}): apiVersion = 'vramline.io/v1': is not a version that is known here;"
            " accepted: vramline.io/v1alpha1",
            id="a report of another version",
        ),
        pytest.param(
            {**LEDGER, "apiVersion": "v1"},
            f"GpuLedger n1 ({PLACE}): apiVersion = 'v1': is not a version that is known here;"
            " accepted: vramline.io/v1alpha1",
            id="a ledger of another version",
        ),
        pytest.param(
            report_document({"totalMiB": 0}),
            f"GpuReport n1 ({PLACE}): status.gpus[0].totalMiB = 0: must be >= 1",
            id="a card of nothing",
        ),
    ],
)
def test_a_bad_document_is_set_aside(document: object, message: str) -> None:
    found = read(document, pod_document(meta={"name": "good"}))

    assert [str(problem) for problem in found.problems][-1] == message
    assert names(found) == ["good"]


def test_a_list_inside_a_list_is_skipped_not_unfolded() -> None:
    inner = {"apiVersion": "v1", "kind": "List", "items": [pod_document()]}

    assert read({"apiVersion": "v1", "kind": "List", "items": [inner]}).skipped == [
        (f"{PLACE}, item 1", "List")
    ]


def test_a_document_that_contains_itself_is_read() -> None:
    knot: list[Any] = []
    knot.append(knot)

    assert names(read(pod_document(topologySpreadConstraints=knot))) == ["p"]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        pytest.param(
            node_document(),
            node_document(),
            "Node n1 (f.yaml, document 2): metadata.name = 'n1': is taken by the Node in f.yaml, document 1;"
            " this one is set aside; accepted: a name of its own",
            id="nodes",
        ),
        pytest.param(
            pod_document(),
            pod_document(),
            "Pod ns/p (f.yaml, document 2): metadata.name = 'ns/p': is taken by the Pod in"
            " f.yaml, document 1; this one is set aside; accepted: a name of its own",
            id="pods",
        ),
        pytest.param(
            report_document(),
            report_document(),
            "GpuReport n1 (f.yaml, document 2): metadata.name = 'n1': is taken by the GpuReport in"
            " f.yaml, document 1; this one is set aside; accepted: a name of its own",
            id="reports",
        ),
        pytest.param(
            workload_document(),
            workload_document(),
            "Deployment ns/web (f.yaml, document 2): metadata.name = 'ns/web': is taken by the Deployment in"
            " f.yaml, document 1; this one is set aside; accepted: a name of its own",
            id="deployments",
        ),
    ],
)
def test_a_name_is_given_once(first: object, second: object, message: str) -> None:
    assert problems(first, second) == [message]


def test_the_same_name_in_another_namespace_is_another_pod() -> None:
    assert problems(pod_document(), pod_document(meta={"namespace": "other"})) == []


def test_generated_names_are_stable() -> None:
    nameless = pod_document(meta={"name": None, "generateName": "job-"})

    assert names(read(nameless, nameless)) == ["job-0", "job-1"]


# ── now ──────────────────────────────────────────────────────────────────────────────────────────────


def moment(seconds: int) -> str:
    return f"1970-01-01T00:00:{seconds:02}Z"


@pytest.mark.parametrize(
    ("documents", "now"),
    [
        pytest.param([], 0.0, id="nothing"),
        pytest.param([pod_document()], 0.0, id="no time"),
        pytest.param([pod_document(meta={"creationTimestamp": moment(5)})], 5.0, id="creation"),
        pytest.param(
            [pod_document(meta={"creationTimestamp": moment(5), "deletionTimestamp": moment(9)})],
            5.0,
            id="a deletion may lie in the future",
        ),
        pytest.param([pod_document(status={"startTime": moment(6)})], 6.0, id="start of a pod"),
        pytest.param(
            [
                pod_document(
                    status={
                        "conditions": [{"type": "Ready", "lastTransitionTime": moment(8)}],
                        "containerStatuses": [{"state": {"running": {"startedAt": moment(7)}}}],
                    }
                )
            ],
            8.0,
            id="a condition of a pod",
        ),
        pytest.param(
            [
                pod_document(
                    status={
                        "initContainerStatuses": [
                            {"state": {"terminated": {"startedAt": moment(1), "finishedAt": moment(9)}}}
                        ]
                    }
                )
            ],
            9.0,
            id="end of a container",
        ),
        pytest.param(
            [node_document(status={"conditions": [{"type": "Ready", "lastHeartbeatTime": moment(7)}]})],
            7.0,
            id="heartbeat",
        ),
        pytest.param(
            [pod_document(meta={"creationTimestamp": moment(5)}), report_document(observedAt=moment(30))],
            30.0,
            id="a report",
        ),
        pytest.param(
            [pod_document(meta={"creationTimestamp": dt.datetime(1970, 1, 1, 0, 0, 5, tzinfo=dt.UTC)})],
            5.0,
            id="a time that YAML has already read",
        ),
    ],
)
def test_now_is_the_newest_time_in_the_input(documents: list[object], now: float) -> None:
    found = read(*documents)

    assert found.problems == []
    assert read_now(found) == now
