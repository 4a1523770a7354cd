"""Several sources about one node: who is believed, and what contradicts what."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetes_builders import hami_card, hami_register, node_object, report
from vramline.model.node import InventorySource, ProblemKind
from vramline.wire import keys
from vramline.wire.nodes import NodeReading, read_node
from vramline.wire.report_v1alpha1 import GpuReport

CARD = {"uuid": "GPU-a", "totalMiB": 32600}
H100 = {"gpu.count": "8", "gpu.memory": "81559", "gpu.product": "NVIDIA-H100-80GB-HBM3"}


def read(seen: GpuReport | None = None, **fields: Any) -> NodeReading:
    return read_node(node_object(**fields), seen)


def test_the_best_source_is_believed() -> None:
    everything: dict[str, Any] = {
        "labels": {"gpu.count": "1", "gpu.memory": "32600"},
        "annotations": {**hami_register(hami_card(type="")), keys.GPUS_PHYSICAL: "1x32600"},
    }

    assert read(report(CARD), **everything).node.source is InventorySource.REPORT
    assert read(**everything).node.source is InventorySource.HAMI
    assert read(labels=everything["labels"]).node.source is InventorySource.GFD
    assert read(report(CARD), **everything).node.problem is None


@pytest.mark.parametrize(
    ("card", "fields", "detail"),
    [
        pytest.param(
            CARD,
            {"labels": {"gpu.count": "2", "gpu.memory": "32600"}},
            "GpuReport: 1 GPU; GPU-feature-discovery labels: 2 GPUs",
            id="number of cards",
        ),
        pytest.param(
            {**CARD, "model": "NVIDIA A10"},
            {"labels": {"gpu.count": "1", "gpu.memory": "32600", "gpu.product": "NVIDIA-L4"}},
            "GpuReport: NVIDIA A10 with 32,600 MiB; GPU-feature-discovery labels: NVIDIA-L4 with 32,600 MiB",
            id="model",
        ),
        pytest.param(
            CARD,
            {"labels": {"gpu.count": "1", "gpu.memory": "16000"}},
            "GpuReport: 32,600 MiB; GPU-feature-discovery labels: 16,000 MiB",
            id="total",
        ),
        pytest.param(
            CARD,
            {"annotations": {keys.GPUS_PHYSICAL: "1x40960"}},
            "GpuReport: 32,600 MiB; vramline.io/gpus-physical annotation: 40,960 MiB",
            id="an operator who is mistaken",
        ),
        pytest.param(
            CARD,
            {"annotations": hami_register(hami_card(devmem=16000, type=""))},
            "GpuReport: 32,600 MiB; HAMi register annotation: 16,000 MiB",
            id="HAMi gives less",
        ),
        pytest.param(
            None,
            {"labels": {"gpu.count": "1", "gpu.memory": "32600"}},
            "GPU-feature-discovery labels: 1 GPU; GpuReport: 0 GPUs",
            id="an agent that sees no card",
        ),
    ],
)
def test_contradicting_sources_are_reported(
    card: dict[str, Any] | None, fields: dict[str, Any], detail: str
) -> None:
    node = read(report(card) if card else report(), **fields).node

    assert node.problem is not None
    assert (node.problem.kind, node.problem.detail) == (ProblemKind.INVENTORY_CONFLICT, detail)
    assert len(node.gpus) == 1


@pytest.mark.parametrize(
    ("card", "labels"),
    [
        pytest.param({"model": "NVIDIA A10"}, {"gpu.product": "NVIDIA-A10-SHARED"}, id="-SHARED"),
        pytest.param({"model": "nvidia a10"}, {"gpu.product": "NVIDIA-A10"}, id="case and dashes"),
        pytest.param({"model": "Tesla T4"}, {"gpu.product": "NVIDIA-Tesla-T4"}, id="the maker's name"),
        pytest.param({}, {"gpu.product": "NVIDIA-A10"}, id="one does not say the model"),
        pytest.param({"totalMiB": 33200}, {"gpu.memory": "32600"}, id="1.8 percent"),
        pytest.param({"totalMiB": 32000}, {"gpu.memory": "32600"}, id="1.8 percent the other way"),
        pytest.param({}, {"gpu.memory": "0"}, id="a label that does not tell memory"),
    ],
)
def test_small_differences_are_none(card: dict[str, Any], labels: dict[str, str]) -> None:
    reading = read(report({**CARD, **card}), labels={"gpu.count": "1", "gpu.memory": "32600", **labels})

    assert reading.node.problem is None


def test_on_unequal_cards_the_labels_need_to_match_one_of_them() -> None:
    cards = [
        {"uuid": "GPU-a", "totalMiB": 81559, "model": "NVIDIA H100"},
        {"uuid": "GPU-b", "totalMiB": 23028, "model": "NVIDIA L4"},
    ]
    fits = {"gpu.count": "2", "gpu.memory": "23034", "gpu.product": "NVIDIA-L4"}

    assert read(report(*cards), labels=fits).node.problem is None
    assert read(report(*cards), labels={**fits, "gpu.memory": "81559"}).node.problem is not None


def test_labels_about_mig_instances_do_not_contradict_the_cards() -> None:
    labels = {"gpu.count": "7", "gpu.memory": "4864", "gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}
    node = read(
        report({"uuid": "GPU-a", "totalMiB": 40960, "model": "NVIDIA A100-SXM4-40GB"}), labels=labels
    ).node

    assert node.problem is None
    assert [card.mig for card in node.gpus] == [True]


def test_stated_cards_are_compared_by_size_not_by_order() -> None:
    cards = [{"uuid": "GPU-a", "totalMiB": 81559}, {"uuid": "GPU-b", "totalMiB": 23028}]

    assert read(report(*cards), annotations={keys.GPUS_PHYSICAL: "1x23028,1x81559"}).node.problem is None


@pytest.mark.parametrize(
    ("seen", "fields", "source"),
    [
        pytest.param(report(CARD), {}, "GpuReport", id="a report gives less"),
        pytest.param(
            None,
            {"labels": {"gpu.count": "1", "gpu.memory": "32600"}},
            "GPU-feature-discovery labels",
            id="a label gives less",
        ),
        pytest.param(
            None,
            {"annotations": {keys.GPUS_PHYSICAL: "1x32600"}},
            "vramline.io/gpus-physical annotation",
            id="an operator gives less",
        ),
    ],
)
def test_scaled_up_memory_of_hami_is_undone(
    seen: GpuReport | None, fields: dict[str, Any], source: str
) -> None:
    annotations = {**hami_register(hami_card(devmem=65200)), **fields.pop("annotations", {})}
    reading = read(seen, annotations=annotations, **fields)

    assert [card.total for card in reading.node.gpus] == [32600]
    assert reading.node.problem is None
    assert reading.warnings == (
        (
            f"HAMi registers 65,200 MiB for GPU-a, which is scaled up; {source} gives 32,600 MiB, and that"
            " counts"
        ),
    )


def test_scaling_shows_on_the_cards_that_the_label_does_not_describe() -> None:
    cards = hami_register(
        hami_card(id="GPU-a", index=0, devmem=160_000, type="NVIDIA H100"),
        hami_card(id="GPU-b", index=1, devmem=48_000, type="NVIDIA L4"),
    )
    reading = read(
        annotations=cards, labels={"gpu.count": "2", "gpu.memory": "80000", "gpu.product": "NVIDIA-H100"}
    )

    assert [card.total for card in reading.node.gpus] == [80_000, 24_000]


def test_hami_tells_slots_that_the_report_leaves_out() -> None:
    reading = read(report(CARD), annotations=hami_register(hami_card(count=10)))

    assert reading.node.gpus[0].slots == 10


@pytest.mark.parametrize(
    ("replicas", "advertised", "slots", "warned"),
    [
        pytest.param(99, 99, 99, False, id="they agree"),
        pytest.param(99, 100, 100, True, id="kubelet offers more"),
        pytest.param(100, 50, 100, True, id="kubelet offers less: perhaps something is unhealthy"),
        pytest.param(1, 1, None, False, id="not shared"),
        pytest.param(99, None, 99, False, id="nothing advertised"),
    ],
)
def test_replicas_of_a_report(replicas: int, advertised: int | None, slots: int | None, warned: bool) -> None:
    offered = {} if advertised is None else {keys.GPU_COUNT: advertised}
    reading = read(report({**CARD, "replicas": replicas}), allocatable=offered)

    assert reading.node.gpus[0].slots == slots
    assert bool(reading.warnings) is warned


@given(
    cards=st.integers(1, 16),
    replicas=st.integers(1, 128),
    source=st.sampled_from(["labels", "stated", "report", "replica ids", "hami"]),
    renamed=st.booleans(),
)
def test_replicas_never_add_memory(cards: int, replicas: int, source: str, renamed: bool) -> None:
    total = 32_600
    fields: dict[str, Any] = {
        "allocatable": {keys.GPU_COUNT_SHARED if renamed else keys.GPU_COUNT: cards * replicas}
    }
    seen = None
    if source == "labels":
        labels = {"gpu.count": cards, "gpu.memory": total, "gpu.replicas": replicas}
        fields["labels"] = {key: str(value) for key, value in labels.items()}
    elif source == "stated":
        fields["annotations"] = {keys.GPUS_PHYSICAL: f"{cards}x{total}"}
    elif source == "hami":
        fields["annotations"] = hami_register(
            *(hami_card(id=f"GPU-{i}", index=i, count=replicas) for i in range(cards))
        )
    elif source == "report":
        seen = report(*({"uuid": f"GPU-{i}", "totalMiB": total, "replicas": replicas} for i in range(cards)))
    else:
        seen = report(
            *({"uuid": f"GPU-{i}::{n}", "totalMiB": total} for i in range(cards) for n in range(replicas))
        )

    reading = read(seen, **fields)

    assert sum(card.total for card in reading.node.gpus) == cards * total
    assert {card.slots for card in reading.node.gpus} == {replicas if replicas > 1 else None}
    assert (reading.node.problem, reading.warnings) == (None, ())
