"""Whatever stands in a manifest is read or refused in one line; nothing else happens."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubernetes_builders import container, node_document, pod_document, report_document, workload_document
from vramline.errors import RequestError
from vramline.wire import keys
from vramline.wire.documents import read_documents, read_now
from vramline.wire.hami import RegisteredGpu, encode_register
from vramline.wire.nodes import read_node
from vramline.wire.pods import read_pod

REGISTER = encode_register([RegisteredGpu(id="GPU-a", count=10, devmem=32600, type="A10", health=True)])
ALLOCATION = '{"node":"n1","gpus":[{"uuid":"GPU-a","mib":8000}],"ledgerVersion":1}'
TIME = "2026-01-01T00:00:00Z"

DOCUMENTS: list[dict[str, Any]] = [
    pod_document(
        container("main", gpu=1, gpumem=8000, gpucores=30, requests={"cpu": "500m", "memory": "2Gi"}),
        annotations={keys.ALLOCATION: ALLOCATION, keys.HAMI_USE_TYPE: "A10"},
        labels={"runai-gpu-group": "g1"},
        meta={"creationTimestamp": TIME, "deletionTimestamp": TIME},
        nodeName="n1",
        tolerations=[{"key": "a", "operator": "Exists"}],
        status={"phase": "Running", "containerStatuses": [{"state": {"running": {"startedAt": TIME}}}]},
    ),
    pod_document(
        annotations={
            "gpu-fraction": "0.5",
            "gpu-fraction-num-devices": "2",
            "vramline.io/realtime-check": "strict",
        },
        meta={"name": "q"},
    ),
    node_document(
        labels={"gpu.count": "1", "gpu.memory": "32600", "gpu.replicas": "10", "gpu.product": "A10-SHARED"},
        annotations={keys.HAMI_REGISTER: REGISTER, keys.GPUS_PHYSICAL: "1x32600", keys.HAMI_CORDON: "GPU-a"},
        allocatable={"cpu": "4", "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "10"},
        status={"conditions": [{"type": "Ready", "status": "True"}]},
        taints=[{"key": "a", "effect": "NoSchedule"}],
    ),
    report_document(
        {
            "uuid": "GPU-a",
            "index": 0,
            "totalMiB": 32600,
            "reservedMiB": 100,
            "usedMiB": 5,
            "health": "Healthy",
            "replicas": 10,
            "processes": [{"pid": 1, "usedMiB": 5, "podUID": "u"}],
        }
    ),
    workload_document(replicas=2),
    workload_document("Job", parallelism=2, completions=3),
    {"apiVersion": "v1", "kind": "List", "items": [pod_document(meta={"name": "inner"})]},
]

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**31, 2**63, 2**70, 16**5000, -1, 0]),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["8Gi", "8 GB", "1e99", "NaN", "-0", "0.5", "GPU-a::7", "[{}]", "{}", "a\nb", ",", ":", ";"]
    ),
)
VALUES = st.one_of(
    SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(st.text(max_size=5), SCALARS, max_size=3)
)


def paths(value: object, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [here] if here else []
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in children:
        found += paths(child, (*here, key))
    return found


@st.composite
def spoiled(draw: st.DrawFn) -> list[dict[str, Any]]:
    """All documents, with up to three values replaced by something else."""
    documents = copy.deepcopy(DOCUMENTS)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(paths(documents)))
        parent: Any = documents
        for step in path[:-1]:
            parent = parent[step] if isinstance(parent, dict | list) and _has(parent, step) else None
        if isinstance(parent, dict | list):
            parent[path[-1]] = draw(VALUES)
    return documents


def _has(parent: dict[Any, Any] | list[Any], step: Any) -> bool:
    return step in parent if isinstance(parent, dict) else isinstance(step, int) and step < len(parent)


def lines(documents: list[Any]) -> list[str]:
    """Translate everything that can be, and return what is said about the rest."""
    found = read_documents((f"f.yaml, document {n}", each) for n, each in enumerate(documents))
    errors = list(found.problems)
    reports = {report.node: report for report in found.reports}
    for pod in found.pods:
        try:
            read_pod(pod)
        except RequestError as error:
            errors.append(error)
    for node in found.nodes:
        try:
            read_node(node, reports.get(node.name))
        except RequestError as error:
            errors.append(error)
    assert isinstance(read_now(found), float)
    return [str(error) for error in errors]


def test_the_documents_are_good_before_they_are_spoiled() -> None:
    assert lines(DOCUMENTS) == []


@given(spoiled())
def test_spoiled_documents_are_read_or_refused_in_one_line(documents: list[Any]) -> None:
    for line in lines(documents):
        assert "\n" not in line
        assert len(line) < 1000


@given(st.lists(VALUES, max_size=5))
def test_documents_of_any_shape_are_refused(documents: list[Any]) -> None:
    for line in lines(documents):
        assert "\n" not in line
