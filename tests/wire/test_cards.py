"""The cards of a node as each source tells them."""

from typing import Any

import pytest

from kubernetes_builders import hami_card, hami_register, node_object, report
from vramline.errors import RequestError
from vramline.model.gpu import Health, PhysicalGpu
from vramline.model.node import InventorySource, ProblemKind
from vramline.model.observation import NOT_REPORTED, GpuProcess, Observation
from vramline.units import Mib
from vramline.wire import keys
from vramline.wire.hami import encode_register, encode_register_as_commas
from vramline.wire.nodes import NodeReading, read_node
from vramline.wire.report_v1alpha1 import GpuReport

CARD = {"uuid": "GPU-a", "totalMiB": 32600}
H100 = {"gpu.count": "8", "gpu.memory": "81559", "gpu.product": "NVIDIA-H100-80GB-HBM3"}
SLICED = {
    "gpu.count": "1",
    "gpu.memory": "32600",
    "gpu.replicas": "100",
    "gpu.product": "NVIDIA-GeForce-RTX-5090-SHARED",
    "gpu.sharing-strategy": "time-slicing",
}
OBSERVED_AT = 1_767_225_600.0


def read(seen: GpuReport | None = None, **fields: Any) -> NodeReading:
    return read_node(node_object(**fields), seen)


# ── the report ───────────────────────────────────────────────────────────────────────────────────────


def test_a_report_tells_everything_about_a_card() -> None:
    reading = read(
        report(
            {
                "uuid": "GPU-a",
                "index": 3,
                "model": "NVIDIA H100 80GB HBM3",
                "totalMiB": 81559,
                "reservedMiB": 550,
                "health": "Probation",
                "replicas": 4,
                "unified": True,
                "numa": 1,
            },
            platform="tegra",
        )
    )

    assert reading.node.gpus == (
        PhysicalGpu(
            uuid="GPU-a",
            node="n1",
            index=3,
            model="NVIDIA H100 80GB HBM3",
            total=Mib(81559),
            reserved=Mib(550),
            slots=4,
            unified=True,
            numa=1,
            health=Health.PROBATION,
        ),
    )
    assert (reading.node.source, reading.node.platform) == (InventorySource.REPORT, "tegra")


def test_what_the_card_did_not_answer_stays_unknown() -> None:
    reading = read(report(CARD))

    assert reading.node.gpus[0].reserved == NOT_REPORTED
    assert reading.node.gpus[0].slots is None
    assert reading.observations == {"GPU-a": Observation(at=OBSERVED_AT)}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"usedMiB": 0}, {"used": Mib(0)}, id="an idle card used nothing"),
        pytest.param({"usedMiB": 6144}, {"used": Mib(6144)}, id="used"),
        pytest.param({"utilizationPercent": 45}, {"utilization_percent": 45}, id="utilisation"),
        pytest.param({"temperatureC": 51}, {"temperature_c": 51}, id="temperature"),
        pytest.param({"processes": []}, {"processes": ()}, id="nothing runs"),
        pytest.param({"processes": None}, {}, id="no list of processes"),
        pytest.param(
            {"processes": [{"pid": 1, "usedMiB": 5, "podUID": "u"}]},
            {"processes": (GpuProcess(pid=1, used=Mib(5), pod_uid="u"),)},
            id="a pod's process",
        ),
        pytest.param(
            {"processes": [{"pid": 1, "usedMiB": 5, "podUID": None}]},
            {"processes": (GpuProcess(pid=1, used=Mib(5), pod_uid=None),)},
            id="nobody's process",
        ),
        pytest.param(
            {"processes": [{"pid": 1}]},
            {"processes": (GpuProcess(pid=1, used=NOT_REPORTED, pod_uid=NOT_REPORTED),)},
            id="a process that was neither measured nor attributed",
        ),
    ],
)
def test_a_report_is_an_observation(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    reading = read(report({**CARD, **fields}))

    assert reading.observations["GPU-a"] == Observation(at=OBSERVED_AT, **expected)


def test_a_report_without_a_time_is_inventory_but_no_observation() -> None:
    reading = read(report({**CARD, "usedMiB": 5}, observedAt=None))

    assert len(reading.node.gpus) == 1
    assert reading.observations == {}
    assert reading.warnings == (
        "the GpuReport has no status.observedAt, so that nothing in it counts as observed",
    )


def test_a_card_that_uses_more_than_it_has_is_warned_about() -> None:
    assert read(report({**CARD, "usedMiB": 40000})).warnings == (
        "GPU-a is reported to use 40000 MiB of 32600 MiB",
    )


def test_a_card_without_uuid_is_named_after_its_node() -> None:
    reading = read(report({"totalMiB": 32600, "index": 2}, {"totalMiB": 32600}))

    assert [card.uuid for card in reading.node.gpus] == ["n1/gpu-2", "n1/gpu-1"]
    assert set(reading.observations) == {"n1/gpu-2", "n1/gpu-1"}


def test_replica_ids_are_one_card() -> None:
    reading = read(report(*({"uuid": f"GPU-a::{n}", "totalMiB": 32600, "usedMiB": 7} for n in range(5))))

    assert [(card.uuid, card.total, card.slots) for card in reading.node.gpus] == [("GPU-a", 32600, 5)]
    assert set(reading.observations) == {"GPU-a"}


def test_a_report_that_has_not_looked_yet_leaves_the_word_to_others() -> None:
    reading = read(report(gpus=None), labels=H100)

    assert reading.node.source is InventorySource.GFD


def test_a_mig_card_of_a_report_is_kept_apart() -> None:
    reading = read(report({**CARD, "mig": True}, {"uuid": "GPU-b", "totalMiB": 32600}))

    assert [card.mig for card in reading.node.gpus] == [True, False]


@pytest.mark.parametrize(
    ("cards", "message"),
    [
        pytest.param([CARD, CARD], "status.gpus[1].uuid = 'GPU-a': is listed twice", id="a UUID twice"),
        pytest.param(
            [{"uuid": "GPU-a::0", "totalMiB": 5}, {"uuid": "GPU-a::1", "totalMiB": 6}],
            "status.gpus[1].uuid = 'GPU-a::1': has two totals",
            id="replicas that disagree",
        ),
        pytest.param(
            [{"totalMiB": 5, "index": 1}, {"totalMiB": 5}],
            "status.gpus[1].uuid = 'n1/gpu-1': is listed twice",
            id="an index twice",
        ),
    ],
)
def test_a_card_listed_twice_is_refused(cards: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(report(*cards))

    assert str(caught.value) == f"GpuReport n1: {message}; accepted: each card once"


# ── HAMi ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("encode", [encode_register, encode_register_as_commas])
def test_both_encodings_of_hami_are_read(encode: Any) -> None:
    cards = [
        hami_card(id="GPU-a", index=0, numa=0),
        hami_card(id="GPU-b", index=1, numa=1, health=False, devcore=200),
        hami_card(id="GPU-c", index=2, mode="mig"),
    ]

    reading = read(annotations={keys.HAMI_REGISTER: encode(cards), keys.HAMI_CORDON: "GPU-a::3, GPU-x"})

    assert reading.node.source is InventorySource.HAMI
    found = [(g.uuid, g.index, g.total, g.numa, g.health, g.cordoned, g.mig) for g in reading.node.gpus]
    assert found == [
        ("GPU-a", 0, 32600, 0, Health.HEALTHY, True, False),
        ("GPU-b", 1, 32600, 1, Health.UNHEALTHY, False, False),
        ("GPU-c", 2, 32600, 0, Health.HEALTHY, False, True),
    ]
    assert [gpu.cores for gpu in reading.node.gpus] == [100, 200, 100]
    assert reading.warnings == ("annotation hami.io/device-cordon names GPU-x, which is no GPU of this node",)


def test_hamis_count_is_slots() -> None:
    reading = read(annotations=hami_register(hami_card(count=10)), allocatable={keys.GPU_COUNT: 10})

    assert (reading.node.gpus[0].slots, reading.node.advertised, reading.warnings) == (10, 10, ())


def test_a_register_of_seven_fields_numbers_cards_by_position() -> None:
    text = "GPU-a,10,32600,100,NVIDIA A10,0,true:GPU-b,10,32600,100,NVIDIA A10,0,true:"

    assert [g.index for g in read(annotations={keys.HAMI_REGISTER: text}).node.gpus] == [0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{", "annotation hami.io/node-nvidia-register = '[{': is not JSON (Input data was truncated)"),
        ("", "annotation hami.io/node-nvidia-register = '': lists no card"),
        (
            '[{"id": "GPU-a", "devmem": "32600"}]',
            "annotation hami.io/node-nvidia-register[0].devmem = '32600': must be a whole number, not text",
        ),
        (
            '[{"devmem": 32600}]',
            "annotation hami.io/node-nvidia-register[0]: has no id",
        ),
        (
            '[{"id": "GPU-a", "health": true}]',
            (
                "annotation hami.io/node-nvidia-register, card 1, devmem = 0: is not a believable number;"
                " accepted: 1 to 2147483647"
            ),
        ),
        (
            '[{"id": "GPU-a", "devmem": 5, "count": -1}]',
            (
                "annotation hami.io/node-nvidia-register, card 1, count = -1: is not a believable number;"
                " accepted: 0 to 65535"
            ),
        ),
        (
            "GPU-a,10,32600,100",
            (
                "annotation hami.io/node-nvidia-register, card 1 = 'GPU-a,10,32600,100': has 4 fields;"
                " accepted: 7 or 9: id,count,devmem,devcore,type,numa,health[,index,mode]"
            ),
        ),
        (
            "GPU-a,ten,32600,100,A10,0,true:",
            "annotation hami.io/node-nvidia-register, card 1, count = 'ten': is not a whole number",
        ),
        (
            "GPU-a,10,32600,100,A10,0,maybe:",
            "annotation hami.io/node-nvidia-register, card 1, health = 'maybe': is neither true nor false",
        ),
    ],
)
def test_a_malformed_register_is_refused(text: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(annotations={keys.HAMI_REGISTER: text})

    assert str(caught.value) == f"Node n1: {message}"


# ── labels ───────────────────────────────────────────────────────────────────────────────────────────


def test_labels_tell_equal_cards() -> None:
    reading = read(labels=H100, allocatable={keys.GPU_COUNT: "8"})

    assert reading.node.source is InventorySource.GFD
    assert [card.uuid for card in reading.node.gpus] == [f"n1/gpu-{index}" for index in range(8)]
    assert {(card.model, card.total, card.slots, card.mig) for card in reading.node.gpus} == {
        ("NVIDIA-H100-80GB-HBM3", 81559, None, False)
    }
    assert reading.warnings == ()


@pytest.mark.parametrize("resource", [keys.GPU_COUNT, keys.GPU_COUNT_SHARED])
def test_a_hundred_devices_of_one_card_are_one_card_with_a_hundred_slots(resource: str) -> None:
    reading = read(labels=SLICED, allocatable={resource: 100})

    assert [(card.model, card.total, card.slots) for card in reading.node.gpus] == [
        ("NVIDIA-GeForce-RTX-5090", 32600, 100)
    ]
    assert (reading.node.advertised, reading.node.problem, reading.warnings) == (100, None, ())


def test_allocatable_beats_the_label_where_they_differ_and_says_so() -> None:
    reading = read(labels={**SLICED, "gpu.replicas": "99"}, allocatable={keys.GPU_COUNT: 100})

    assert reading.node.gpus[0].slots == 100
    assert reading.warnings == (
        "kubelet advertises 100 devices for 1 physical GPU, but 99 replicas are configured",
    )


@pytest.mark.parametrize(
    ("labels", "allocatable", "cards", "slots"),
    [
        pytest.param({"gpu.count": "2", "gpu.replicas": "10"}, 20, 2, 10, id="two cards, ten times each"),
        pytest.param({"gpu.count": "2", "gpu.replicas": "10"}, 19, 2, 10, id="not whole: the label"),
        pytest.param(
            {"gpu.count": "2", "gpu.replicas": "10"}, None, 2, 10, id="nothing advertised: the label"
        ),
        pytest.param({"gpu.count": "2", "gpu.replicas": "10"}, 0, 2, 10, id="0 advertised: the label"),
        pytest.param({"gpu.count": "2"}, 20, 2, 10, id="no label: allocatable"),
        pytest.param({"gpu.count": "2"}, 2, 2, None, id="not shared"),
        pytest.param({"gpu.count": "2", "gpu.replicas": "1"}, 2, 2, None, id="one replica is no sharing"),
        pytest.param({"gpu.count": "2"}, 1, 2, None, id="one of two cards is not offered"),
        pytest.param({"gpu.replicas": "10"}, 20, 2, 10, id="number of cards from the replicas"),
        pytest.param({}, 2, 2, None, id="number of cards from allocatable"),
    ],
)
def test_slots_and_cards_by_labels(
    labels: dict[str, str], allocatable: int | None, cards: int, slots: int | None
) -> None:
    offered = {} if allocatable is None else {keys.GPU_COUNT: allocatable}
    reading = read(labels={"gpu.memory": "24576", **labels}, allocatable=offered)

    assert [card.slots for card in reading.node.gpus] == [slots] * cards


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({}, id="nothing at all"),
        pytest.param({"gpu.count": "1"}, id="a number without memory"),
        pytest.param({"gpu.memory": "0", "gpu.count": "1"}, id="memory 0 tells nothing"),
        pytest.param(
            {"gpu.memory": "24576", "gpu.product": "A10-SHARED"}, id="shared, nobody says how often"
        ),
        pytest.param({"gpu.memory": "24576", "gpu.replicas": "7"}, id="replicas that do not divide"),
    ],
)
def test_devices_nobody_explains_are_an_unknown_inventory(labels: dict[str, str]) -> None:
    node = read(labels=labels, allocatable={keys.GPU_COUNT: 100}).node

    assert node.gpus == ()
    assert node.problem is not None
    assert node.problem.kind is ProblemKind.UNKNOWN_INVENTORY
    assert node.problem.detail == (
        "kubelet advertises 100 GPU devices, but nothing tells how many cards they are and how large:"
        " no GpuReport, no hami.io/node-nvidia-register, no nvidia.com/gpu.count with nvidia.com/gpu.memory,"
        " no vramline.io/gpus-physical"
    )


def test_a_node_without_gpus_has_no_problem() -> None:
    node = read(allocatable={"cpu": 4}).node

    assert (node.gpus, node.problem, node.source, node.advertised) == ((), None, InventorySource.NONE, None)


@pytest.mark.parametrize(
    ("label", "text", "high"),
    [
        ("gpu.memory", "80GB", 2**31 - 1),
        ("gpu.memory", "-1", 2**31 - 1),
        ("gpu.memory", "9999999999", 2**31 - 1),
        ("gpu.count", "eight", 1024),
        ("gpu.count", "1000000", 1024),
        ("gpu.replicas", "1.5", 65_535),
    ],
)
def test_a_malformed_label_is_refused(label: str, text: str, high: int) -> None:
    with pytest.raises(RequestError) as caught:
        read(labels={label: text})

    assert str(caught.value) == (
        f"Node n1: label nvidia.com/{label} = {text!r}: is not a believable number;"
        f" accepted: a whole number from 0 to {high}"
    )


@pytest.mark.parametrize(
    ("labels", "allocatable"),
    [
        pytest.param(
            {"gpu.count": "7", "gpu.memory": "4864", "gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"},
            {keys.GPU_COUNT: 7},
            id="single strategy: the labels describe instances",
        ),
        pytest.param(
            {"gpu.count": "2", "gpu.memory": "40960", "mig.strategy": "mixed"},
            {keys.GPU_COUNT: 0, "nvidia.com/mig-1g.5gb": 14},
            id="mixed strategy, all cards partitioned",
        ),
        pytest.param(
            {"gpu.count": "2", "gpu.memory": "40960", "mig.strategy": "mixed", "mig-1g.5gb.count": "14"},
            {keys.GPU_COUNT: 0},
            id="mixed strategy, told by labels",
        ),
    ],
)
def test_partitioned_cards_are_recognised(labels: dict[str, str], allocatable: dict[str, int]) -> None:
    node = read(labels=labels, allocatable=allocatable).node

    assert {card.mig for card in node.gpus} == {True}
    assert node.problem is None


def test_whole_cards_beside_partitioned_ones_stay_usable() -> None:
    labels = {"gpu.count": "2", "gpu.memory": "40960", "mig.strategy": "mixed"}
    node = read(labels=labels, allocatable={keys.GPU_COUNT: 2, "nvidia.com/mig-1g.5gb": 7}).node

    assert [card.mig for card in node.gpus] == [False, False]


def test_reported_cards_of_a_partitioned_node_are_all_kept_apart_while_nobody_says_which() -> None:
    reading = read(report(CARD), allocatable={"nvidia.com/mig-1g.5gb": 7})

    assert [card.mig for card in reading.node.gpus] == [True]
    assert reading.warnings == (
        "GPUs of this node are partitioned by MIG, and nothing says which; all are kept apart",
    )


# ── the operator's annotation ────────────────────────────────────────────────────────────────────────


def stated(text: str, **fields: Any) -> NodeReading:
    return read(annotations={keys.GPUS_PHYSICAL: text}, **fields)


def test_a_number_of_cards_takes_memory_from_the_label() -> None:
    reading = stated("1", labels={"gpu.memory": "32600"}, allocatable={keys.GPU_COUNT: 100})

    assert reading.node.source is InventorySource.ANNOTATION
    assert [(card.total, card.slots) for card in reading.node.gpus] == [(32600, 100)]


def test_unequal_cards_can_be_stated() -> None:
    reading = stated("2x81559:NVIDIA H100, 1x40960", allocatable={keys.GPU_COUNT: 3})

    assert [(card.uuid, card.total, card.model) for card in reading.node.gpus] == [
        ("n1/gpu-0", 81559, "NVIDIA H100"),
        ("n1/gpu-1", 81559, "NVIDIA H100"),
        ("n1/gpu-2", 40960, ""),
    ]


def test_a_number_of_cards_without_memory_anywhere_tells_nothing() -> None:
    problem = stated("1", allocatable={keys.GPU_COUNT: 100}).node.problem

    assert problem is not None
    assert problem.kind is ProblemKind.UNKNOWN_INVENTORY


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("one", "is not understood"),
        ("", "is not understood"),
        ("1.5", "is not understood"),
        ("2x80Gi", "is not understood"),
        ("2x81559,", "is not understood"),
        ("-1", "is not understood"),
        ("0", "means 0 cards, which is not 1 to 1024"),
        ("5000", "means 5000 cards, which is not 1 to 1024"),
        ("0x81559", "holds a number that is not believable"),
        ("2x0", "holds a number that is not believable"),
        ("1x9999999999", "holds a number that is not believable"),
    ],
)
def test_a_malformed_statement_is_refused(text: str, problem: str) -> None:
    with pytest.raises(RequestError) as caught:
        stated(text)

    assert str(caught.value) == (
        f"Node n1: annotation vramline.io/gpus-physical = {text!r}: {problem}; accepted: a number of cards"
        ' ("1"), or a comma list of NxMIB with an optional model ("2x81559:NVIDIA H100,1x40960")'
    )
