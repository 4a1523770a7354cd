"""What a node is besides its cards."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetes_builders import node_object
from vramline.errors import RequestError
from vramline.model.gpu import Health
from vramline.model.node import HostRoom, Taint
from vramline.wire import keys
from vramline.wire.nodes import NodeReading, read_node
from vramline.wire.report_v1alpha1 import GpuReport, ReportedGpu

H100 = {"gpu.count": "8", "gpu.memory": "81559", "gpu.product": "NVIDIA-H100-80GB-HBM3"}


def read(**fields: Any) -> NodeReading:
    return read_node(node_object(**fields), None)


def test_what_the_host_offers_is_read() -> None:
    node = read(allocatable={"cpu": "3920m", "memory": "16Gi", "pods": "110"}).node

    assert node.host == HostRoom(cpu_milli=3920, memory_bytes=16 * 2**30, pods=110)


def test_capacity_counts_where_nothing_is_said_to_be_allocatable() -> None:
    node = read(status={"capacity": {"cpu": 4, keys.GPU_COUNT: 2}}, labels={"gpu.memory": "24576"}).node

    assert (node.host.cpu_milli, node.advertised, len(node.gpus)) == (4000, 2, 2)


def test_what_the_host_does_not_say_does_not_limit() -> None:
    assert read().node.host == HostRoom()


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        pytest.param(None, True, id="no condition"),
        pytest.param([{"type": "Ready", "status": "True"}], True, id="ready"),
        pytest.param([{"type": "Ready", "status": "False"}], False, id="not ready"),
        pytest.param([{"type": "Ready", "status": "Unknown"}], False, id="unknown is not ready"),
        pytest.param([{"type": "DiskPressure", "status": "False"}], True, id="another condition"),
    ],
)
def test_readiness(conditions: list[dict[str, str]] | None, ready: bool) -> None:
    assert read(status={"conditions": conditions}).node.ready is ready


def test_cordon_taints_and_labels_are_kept() -> None:
    node = read(
        unschedulable=True,
        taints=[{"key": "a", "effect": "NoSchedule"}, {"key": "b", "value": "c", "effect": "NoExecute"}],
        labels={"zone/z": "1"},
    ).node

    assert (node.cordoned, node.labels) == (True, {"zone/z": "1"})
    assert node.taints == (Taint("a", "", "NoSchedule"), Taint("b", "c", "NoExecute"))


@pytest.mark.parametrize(
    ("allocatable", "message"),
    [
        (
            {keys.GPU_COUNT: "two"},
            (
                "status.allocatable[nvidia.com/gpu] = 'two': is not a whole number;"
                " accepted: a whole number from 0 to 67107840"
            ),
        ),
        (
            {"cpu": "many"},
            (
                "status.allocatable.cpu = 'many': is not a Kubernetes quantity;"
                " accepted: a Kubernetes quantity, such as 2, 500m or 4Gi"
            ),
        ),
        ({"memory": "-1Gi"}, "status.allocatable.memory = '-1Gi': must not be negative"),
        ({"memory": "1e99"}, "status.allocatable.memory = '1e99': is too large to be true"),
    ],
)
def test_a_malformed_amount_is_refused(allocatable: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(allocatable=allocatable)

    assert str(caught.value) == f"Node n1: {message}"


CARDS = st.builds(
    ReportedGpu,
    total_mib=st.sampled_from([15_360, 81_559, 81_000]),
    uuid=st.sampled_from([None, "GPU-a", "GPU-b", "GPU-c", "GPU-d", "GPU-a::1", "GPU-a::2"]),
    index=st.sampled_from([None, 0, 1, 2]),
    model=st.sampled_from([None, "NVIDIA H100 80GB HBM3", "Tesla T4"]),
    reserved_mib=st.sampled_from([None, 0, 550]),
    used_mib=st.sampled_from([None, 3, 90_000]),
    health=st.sampled_from([None, *Health]),
    replicas=st.sampled_from([None, 1, 4]),
    unified=st.sampled_from([None, False, True]),
    numa=st.sampled_from([None, 1]),
    link_group=st.sampled_from([None, 2]),
    mig=st.sampled_from([None, False, True]),
)
LABELS = st.dictionaries(
    st.sampled_from(["gpu.count", "gpu.memory", "gpu.replicas"]), st.sampled_from(["1", "2", "4", "81559"])
)


def read_or_refuse(name: str, report: GpuReport, **fields: Any) -> NodeReading | str:
    try:
        return read_node(node_object(name, **fields), report)
    except RequestError as error:
        return str(error)


@given(
    cards=st.lists(CARDS, max_size=4),
    labels=LABELS,
    devices=st.sampled_from([None, "1", "2", "4", "8"]),
    memory=st.sampled_from(["8Gi", "64Gi"]),
)
def test_nodes_of_one_sort_are_read_as_each_would_be_alone(
    cards: list[ReportedGpu], labels: dict[str, str], devices: str | None, memory: str
) -> None:
    offered = {"memory": memory} | ({} if devices is None else {keys.GPU_COUNT: devices})
    for name in ("one", "another"):  # the second is like the first
        report = GpuReport(node=name, observed_at=5.0, gpus=tuple(cards))
        told: dict[str, Any] = {"labels": labels, "allocatable": offered}
        alone = read_or_refuse(name, report, annotations={keys.HAMI_CORDON: ""}, **told)

        assert read_or_refuse(name, report, **told) == alone
