"""A whole pod: identity, cards it is on, what is noted."""

from typing import Any

import pytest

from kubernetes_builders import container, pod_object
from vramline.errors import RequestError
from vramline.model.pod import Allocation, GpuShare, Pod, PodPhase
from vramline.units import Mib
from vramline.wire import keys
from vramline.wire.allocation import AllocationRecord, encode_allocation
from vramline.wire.pods import read_pod

MEMORY = {"gpu-memory": "8000"}


def read(*containers: dict[str, Any], **fields: Any) -> Pod:
    return read_pod(pod_object(*containers, **fields))


def test_a_plain_pod() -> None:
    pod = read(meta={"uid": "4711", "creationTimestamp": "1970-01-01T00:01:00Z"}, priority=7)

    assert pod == Pod(namespace="ns", name="p", uid="4711", created_at=60.0, priority=7)


def test_a_pod_says_what_it_asks_for() -> None:
    ask = read(annotations=MEMORY).ask

    assert ask is not None
    assert ask.pod == "ns/p"


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"name": None}, "Pod ns/: metadata.name = '': is not a name"),
        ({"name": "a b"}, "Pod ns/a b: metadata.name = 'a b': is not a name"),
        ({"namespace": "a/b"}, "Pod a/b/p: metadata.namespace = 'a/b': is not a name"),
    ],
)
def test_a_pod_needs_a_name(meta: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(meta=meta)

    assert str(caught.value) == message


# ── the cards a pod is on ────────────────────────────────────────────────────────────────────────────

OWN = encode_allocation(AllocationRecord(node="n1", gpus=(GpuShare("GPU-a", Mib(8000), 20),)))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, None, id="nobody says"),
        pytest.param(
            {"annotations": {keys.ALLOCATION: OWN}},
            Allocation(gpus=(GpuShare("GPU-a", Mib(8000), 20),), origin="vramline.io/allocation"),
            id="our own annotation",
        ),
        pytest.param(
            {
                "annotations": {
                    keys.HAMI_ALLOCATED: "GPU-a,NVIDIA,4000,30:;;GPU-a,NVIDIA,3000,0:GPU-b,NVIDIA,1,0:;"
                }
            },
            Allocation(
                gpus=(GpuShare("GPU-a", Mib(7000), 30), GpuShare("GPU-b", Mib(1), 0)),
                origin="hami.io/vgpu-devices-allocated",
            ),
            id="HAMi: containers on one card add up",
        ),
        pytest.param(
            {"annotations": {keys.HAMI_ALLOCATED: "GPU-a::7,NVIDIA,4000,0:;"}},
            Allocation(gpus=(GpuShare("GPU-a", Mib(4000)),), origin="hami.io/vgpu-devices-allocated"),
            id="HAMi: a replica id means its card",
        ),
        pytest.param(
            {"annotations": {keys.HAMI_ALLOCATED: "GPU-a[1-0],NVIDIA,4000,0:;"}},
            Allocation(gpus=(GpuShare("GPU-a", Mib(4000)),), origin="hami.io/vgpu-devices-allocated"),
            id="HAMi: a MIG instance means its card",
        ),
        pytest.param({"annotations": {keys.HAMI_ALLOCATED: ";"}}, None, id="HAMi: no device"),
        pytest.param(
            {"labels": {"runai-gpu-group": "g1"}},
            Allocation(groups=("g1",), origin="runai-gpu-group"),
            id="KAI: one group",
        ),
        pytest.param(
            {"labels": {"runai-gpu-group/g1": "g1", "runai-gpu-group/g2": "g2"}},
            Allocation(groups=("g1", "g2"), origin="runai-gpu-group"),
            id="KAI: a group for each device",
        ),
        pytest.param(
            {
                "annotations": {keys.ALLOCATION: OWN, keys.HAMI_ALLOCATED: "?"},
                "labels": {"runai-gpu-group": "g"},
            },
            Allocation(gpus=(GpuShare("GPU-a", Mib(8000), 20),), origin="vramline.io/allocation"),
            id="our own annotation comes first",
        ),
    ],
)
def test_the_cards_of_a_placed_pod(fields: dict[str, Any], expected: Allocation | None) -> None:
    assert read(nodeName="n1", **fields).allocation == expected


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="not placed yet"),
        pytest.param({"nodeName": "n1", "status": {"phase": "Succeeded"}}, id="finished"),
    ],
)
def test_a_pod_that_holds_nothing_has_no_cards(fields: dict[str, Any]) -> None:
    assert read(annotations={keys.ALLOCATION: "?"}, **fields).allocation is None


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        (
            keys.ALLOCATION,
            "GPU-a",
            (
                "annotation vramline.io/allocation = 'GPU-a': is not JSON (JSON is malformed: invalid"
                " character (byte 0))"
            ),
        ),
        (keys.ALLOCATION, "[]", "annotation vramline.io/allocation: must be a mapping, not a list"),
        (keys.ALLOCATION, '{"gpus": []}', "annotation vramline.io/allocation: has no node"),
        (
            keys.ALLOCATION,
            '{"node": "n1", "gpus": []}',
            "annotation vramline.io/allocation.gpus = '': must name at least one GPU, and each only once",
        ),
        (
            keys.ALLOCATION,
            '{"node": "n1", "gpus": [{"uuid": "GPU-a", "mib": "8000"}]}',
            "annotation vramline.io/allocation.gpus[0].mib = '8000': must be a whole number, not text",
        ),
        (
            keys.ALLOCATION,
            '{"node": "n1", "gpus": [{"uuid": "GPU-a", "mib": 0}]}',
            (
                "annotation vramline.io/allocation.gpus[0].mib = 0: is not an amount of memory;"
                " accepted: 1 to 2147483647"
            ),
        ),
        (
            keys.ALLOCATION,
            '{"node": "n1", "gpus": [{"uuid": "GPU-a", "mib": 1, "cores": 101}]}',
            "annotation vramline.io/allocation.gpus[0].cores = 101: is not a percentage; accepted: 0 to 100",
        ),
        (
            keys.ALLOCATION,
            '{"node": "n1", "gpus": [{"uuid": "", "mib": 1}]}',
            "annotation vramline.io/allocation.gpus[0].uuid = '': is empty",
        ),
        (
            keys.ALLOCATION,
            '{"node": "n2", "gpus": [{"uuid": "GPU-a", "mib": 1}]}',
            "annotation vramline.io/allocation.node = 'n2': contradicts spec.nodeName, which is n1",
        ),
        (
            keys.HAMI_ALLOCATED,
            "GPU-a,NVIDIA,8000:;",
            (
                "annotation hami.io/vgpu-devices-allocated = 'GPU-a,NVIDIA,8000': is not a device;"
                " accepted: uuid,vendor,MiB,cores"
            ),
        ),
        (
            keys.HAMI_ALLOCATED,
            "GPU-a,NVIDIA,lots,0:;",
            "annotation hami.io/vgpu-devices-allocated, MiB = 'lots': is not a whole number",
        ),
        (
            keys.HAMI_ALLOCATED,
            "GPU-a,NVIDIA,-5,0:;",
            (
                "annotation hami.io/vgpu-devices-allocated = 'GPU-a,NVIDIA,-5,0': holds no believable amount;"
                " accepted: 1 to 2147483647 MiB and 0 to 100 cores"
            ),
        ),
    ],
)
def test_an_unreadable_allocation_is_refused(key: str, text: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(nodeName="n1", annotations={key: text})

    assert str(caught.value) == f"Pod ns/p: {message}"


# ── reservation pods of KAI ──────────────────────────────────────────────────────────────────────────

RESERVATION = {"app": "kai-resource-reservation", "runai-gpu-group": "g1"}


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({keys.KAI_RESERVED_UUID: "GPU-a"}, ("g1", "GPU-a"), id="it knows its card"),
        pytest.param({keys.KAI_RESERVED_UUID: "GPU-a::3"}, ("g1", "GPU-a"), id="by a replica id"),
        pytest.param({}, None, id="it does not know yet"),
    ],
)
def test_a_reservation_pod_tells_the_card_of_its_group(
    annotations: dict[str, str], expected: tuple[str, str] | None
) -> None:
    pod = read(container(gpu=1), labels=RESERVATION, annotations=annotations, nodeName="n1")

    assert (pod.reserves_group, pod.ask, pod.allocation, pod.notes) == (expected, None, None, ())


def test_other_pods_reserve_no_group() -> None:
    assert (
        read(labels={"runai-gpu-group": "g1"}, annotations={keys.KAI_RESERVED_UUID: "x"}).reserves_group
        is None
    )


# ── notes ────────────────────────────────────────────────────────────────────────────────────────────

TERMS = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({"affinity": {"podAffinity": {"x": []}}}, "podAffinity is not simulated"),
        ({"affinity": {"podAntiAffinity": {"x": []}}}, "podAntiAffinity is not simulated"),
        (
            {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            "preferred node affinity is not simulated",
        ),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        TERMS: {
                            "nodeSelectorTerms": [
                                {
                                    "matchFields": [
                                        {"key": "metadata.name", "operator": "NotIn", "values": ["a"]}
                                    ]
                                }
                            ]
                        }
                    }
                }
            },
            "node affinity by matchFields other than In is not simulated",
        ),
        ({"topologySpreadConstraints": [{}]}, "topologySpreadConstraints are not simulated"),
        ({"schedulingGates": [{"name": "x"}]}, "schedulingGates are not simulated"),
        (
            {"resourceClaims": [{"name": "gpu"}]},
            "resourceClaims (dynamic resource allocation) are not simulated",
        ),
        (
            {"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "x"}}]},
            "persistent volumes are not simulated",
        ),
        ({"volumes": [{"name": "a", "ephemeral": {"y": 1}}]}, "persistent volumes are not simulated"),
        (
            {"annotations": {"vramline.io/vrma": "8Gi"}},
            "annotation vramline.io/vrma is not known and has no effect",
        ),
        (
            {"annotations": {"nvidia.com/use-gputype": "A100"}},
            "annotation nvidia.com/use-gputype has no effect, because the pod asks for no GPU",
        ),
        (
            {"annotations": {**MEMORY, "nvidia.com/vgpu-mode": "mig"}},
            "annotation nvidia.com/vgpu-mode is not acted on",
        ),
        (
            {"meta": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
            "deletion was asked for before the pod was placed, so it is not placed any more",
        ),
    ],
)
def test_what_is_left_out_is_noted(fields: dict[str, Any], note: str) -> None:
    assert read(**fields).notes == (note,)


@pytest.mark.parametrize(
    ("limits", "note"),
    [
        (
            {"nvidia.com/mig-1g.5gb": 1},
            "nvidia.com/mig-1g.5gb is left to the NVIDIA device plugin and not simulated",
        ),
        ({"rdma/hca": 1}, "resource rdma/hca is not simulated"),
        ({"ephemeral-storage": "1Gi"}, "resource ephemeral-storage is not simulated"),
    ],
)
def test_resources_that_are_left_out_are_noted(limits: dict[str, Any], note: str) -> None:
    assert read(container(limits=limits)).notes == (note,)


def test_host_ports_are_noted() -> None:
    assert read(container(ports=[{"hostPort": 80}])).notes == ("host ports are not simulated",)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(
            {"annotations": {**MEMORY, "nvidia.com/use-gputype": "A100"}}, id="a choice with an ask"
        ),
        pytest.param(
            {"annotations": {keys.ASK: '{"gpus":1,"size":{"type":"whole"}}', keys.VISIBLE_DEVICES: "y"}},
            id="our sealed annotations",
        ),
        pytest.param({"volumes": [{"name": "a", "emptyDir": {}}]}, id="a volume without a place"),
        pytest.param({"topologySpreadConstraints": []}, id="an empty list"),
    ],
)
def test_what_is_acted_on_is_not_noted(fields: dict[str, Any]) -> None:
    assert read(**fields).notes == ()


def test_phase_node_and_times_are_those_of_its_life() -> None:
    pod = read(nodeName="n1", status={"startTime": "1970-01-01T00:00:05Z"})

    assert (pod.phase, pod.node, pod.started_at) == (PodPhase.RUNNING, "n1", 5.0)


PREEMPTOR = {"type": keys.CONDITION_PREEMPTOR, "status": "True", "reason": "n1"}


def test_a_preemptor_waits_on_the_node_that_its_condition_names() -> None:
    pod = read(status={"nominatedNodeName": "n2", "conditions": [{"type": "PodScheduled"}, PREEMPTOR]})

    assert (pod.preempts_on, pod.nominated) == ("n1", "n2")


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"status": {"nominatedNodeName": "n1"}}, id="a nomination is a hint"),
        pytest.param({"status": {"conditions": [{**PREEMPTOR, "status": "False"}]}}, id="it gave up"),
        pytest.param({"status": {"conditions": [PREEMPTOR]}, "nodeName": "n1"}, id="it is bound"),
    ],
)
def test_nothing_is_kept_for_a_pod(fields: dict[str, Any]) -> None:
    assert read(**fields).preempts_on is None


@pytest.mark.parametrize(("policy", "may"), [("Never", False), ("PreemptLowerPriority", True), (None, True)])
def test_who_may_preempt(policy: str | None, may: bool) -> None:
    assert read(preemptionPolicy=policy).may_preempt is may
