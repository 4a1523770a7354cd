"""The real nvidia-ml-py on a stand-in library: what each card says, and what it does not say."""

import pytest

from fakenvml import Card, Slice
from probes.machines import Machine, failed_codes
from vramline.probes.device import (
    Failed,
    MemorySource,
    MigInstance,
    ProcessReading,
    Unsupported,
)
from vramline.units import Mib

A, B, C = "GPU-aaaaaaaa", "GPU-bbbbbbbb", "GPU-cccccccc"


def process(pid: int, used: int) -> ProcessReading:
    return ProcessReading(pid=pid, used=Mib(used))


def test_a_card_says_everything(machine: Machine) -> None:
    reading = machine.read_one(
        Card(
            A,
            total=81_559,
            used=6144,
            reserved=550,
            utilization=45,
            temperature=51,
            processes={4711: 6144},
            mig=False,
            options={"numa": 1, "bus": "3B", "ecc": "3,0", "rows_pending": 0},
        )
    )

    assert (reading.uuid, reading.index, reading.physical_id) == (A, 0, "0000:3b:00.0")
    assert (reading.model, reading.total, reading.reserved, reading.used) == (
        "NVIDIA H100 80GB HBM3",
        81_559,
        550,
        6144,
    )
    assert (reading.memory_source, reading.unified) == (MemorySource.NVML, False)
    assert (reading.utilization_percent, reading.temperature_c, reading.numa) == (45, 51, 1)
    assert reading.processes == (process(4711, 6144),)
    assert (reading.health.ecc_corrected, reading.health.ecc_uncorrected) == (3, 0)
    assert (reading.health.rows_pending, reading.health.rows_failed) == (False, False)
    assert (reading.mig_enabled, reading.mig) == (False, ())


def test_used_is_read_anew_every_time(machine: Machine) -> None:
    probe = machine.open(Card(A, used=6144))
    before = probe.read()[0].used
    machine.nvml.set(Card(A, used=100))

    assert (before, probe.read()[0].used) == (6144, 100)


def test_amounts_are_rounded_so_that_nothing_is_promised_that_is_not_there(machine: Machine) -> None:
    reading = machine.read_one(Card(A, options={"total_bytes": 2**30 + 5, "used_bytes": 2**20 + 1}))

    assert (reading.total, reading.used) == (1024, 2)


def test_the_older_call_counts_the_reserved_as_used(machine: Machine) -> None:
    reading = machine.read_one(Card(A, total=40_960, used=100, reserved=624, errors={"memory_v2": 13}))

    assert (reading.total, reading.used, reading.memory_source) == (40_960, 724, MemorySource.NVML_V1)
    assert reading.reserved == Unsupported("this driver counts it as used")


def test_a_process_in_both_lists_counts_once_with_the_larger_figure(machine: Machine) -> None:
    reading = machine.read_one(Card(A, used=900, processes={1: 300, 2: 200}, graphics={2: 250, 3: 50}))

    assert reading.processes == (
        process(1, 300),
        process(2, 250),
        process(3, 50),
    )


def test_a_process_whose_memory_is_not_told_holds_an_unknown_amount(machine: Machine) -> None:
    reading = machine.read_one(Card(A, used=900, processes={7: None}))

    assert reading.processes == (
        ProcessReading(pid=7, used=Unsupported("the driver does not tell how much")),
    )


NOT_LISTED = Unsupported("the driver lists no processes that compute")


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        pytest.param({"processes": 3, "graphics": 3}, NOT_LISTED, id="neither"),
        pytest.param({"processes": 3}, NOT_LISTED, id="only graphics: half a list is no list"),
        pytest.param({"graphics": 3}, (process(1, 4),), id="only compute"),
    ],
)
def test_process_lists_that_are_not_supported(
    errors: dict[str, int], expected: object, machine: Machine
) -> None:
    reading = machine.read_one(Card(A, used=9, processes={1: 4}, graphics={2: 5}, errors=errors))

    assert reading.processes == expected
    assert reading.used == 9


def test_half_a_list_of_processes_is_no_list(machine: Machine) -> None:
    reading = machine.read_one(Card(A, used=9, processes={1: 4}, graphics={2: 5}, errors={"graphics": 999}))

    assert isinstance(reading.processes, Failed)
    assert reading.processes.code == "UNKNOWN"


@pytest.mark.parametrize(
    ("question", "field"),
    [
        pytest.param("memory", "used", id="memory"),
        pytest.param("processes", "processes", id="processes"),
        pytest.param("utilization", "utilization_percent", id="utilisation"),
        pytest.param("temperature", "temperature_c", id="temperature"),
        pytest.param("name", "model", id="name"),
        pytest.param("pci", "physical_id", id="PCI id"),
        pytest.param("mig", "mig_enabled", id="MIG mode"),
    ],
)
def test_one_answer_that_fails_spoils_no_other(question: str, field: str, machine: Machine) -> None:
    reading = machine.read_one(Card(A, used=6144, errors={question: 4}, options={"numa": 0, "ecc": "0,0"}))

    answer = getattr(reading, field)
    assert isinstance(answer, Failed)
    assert answer.code == "NO_PERMISSION"
    assert "NVML_ERROR_NO_PERMISSION (Insufficient Permissions)" in answer.detail
    assert "answered" in failed_codes(reading)


@pytest.mark.parametrize(
    ("card", "fields"),
    [
        pytest.param(
            Card(A, options={"total_bytes": 17_592_186_044_416}), ("total", "used", "reserved"), id="17 TB"
        ),
        pytest.param(Card(A, options={"total_bytes": 2**64 - 1}), ("total", "used"), id="all bits set"),
        pytest.param(Card(A, total=0), ("total", "used"), id="a total of 0"),
        pytest.param(Card(A, total=100, used=101), ("used",), id="more used than there is"),
        pytest.param(Card(A, total=100, options={"used_bytes": 2**64 - 2**20}), ("used",), id="wrapped used"),
        pytest.param(Card(A, total=100, reserved=200), ("reserved",), id="more reserved than there is"),
        pytest.param(Card(A, utilization=101), ("utilization_percent",), id="a utilisation of 101 %"),
        pytest.param(Card(A, temperature=65_535), ("temperature_c",), id="hotter than the sun"),
        pytest.param(Card(A, processes={0: 5}), ("processes",), id="process 0"),
        pytest.param(Card(A, processes={2**31 + 5: 5}), ("processes",), id="a process number that cannot be"),
    ],
)
def test_nonsense_is_never_passed_on(card: Card, fields: tuple[str, ...], machine: Machine) -> None:
    reading = machine.read_one(card)

    answers = [getattr(reading, field) for field in fields]
    assert [getattr(answer, "code", answer) for answer in answers] == ["NONSENSE"] * len(fields)


def test_a_process_with_more_than_the_card_holds_an_unknown_amount(machine: Machine) -> None:
    reading = machine.read_one(Card(A, total=100, processes={1: 5, 2: 5000}))

    assert isinstance(reading.processes, tuple)
    assert [getattr(each.used, "code", each.used) for each in reading.processes] == [5, "NONSENSE"]


def test_a_partitioned_card_lists_its_instances_and_keeps_its_own_totals(machine: Machine) -> None:
    slices = (
        Slice(uuid="MIG-1", total=19_968, used=9728, gpu_instance=1, processes={2001: 9728}),
        Slice(uuid="MIG-2", total=4864, used=19, gpu_instance=13),
    )
    reading = machine.read_one(Card(A, total=40_960, used=9747, mig=True, slices=slices))

    assert (reading.mig_enabled, reading.total, reading.used) == (True, 40_960, 9747)
    assert isinstance(reading.mig, tuple)
    assert reading.mig[0] == MigInstance(
        uuid="MIG-1",
        model="NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        gpu_instance=1,
        compute_instance=0,
        total=Mib(19_968),
        reserved=Mib(0),
        used=Mib(9728),
        processes=(process(2001, 9728),),
    )
    assert [each.uuid for each in reading.mig] == ["MIG-1", "MIG-2"]
    assert reading.processes == (process(2001, 9728),)


def test_links_say_who_is_reached_over_nvlink_and_how_near_on_pcie(machine: Machine) -> None:
    first, _, _ = machine.read(
        Card(A, options={"nvlink": "1", "pcie": 1, "numa": 0}),
        Card(B, options={"nvlink": "0", "pcie": 1, "numa": 0}),
        Card(C, options={"numa": 1}),
    )

    assert isinstance(first.links, tuple)
    assert [(link.peer, link.nvlink, link.ancestor) for link in first.links] == [
        (B, True, "single"),
        (C, False, "system"),
    ]


def test_a_card_whose_memory_is_a_numa_node_is_marked(machine: Machine) -> None:
    assert machine.read_one(Card(A, options={"memnuma": 8})).memory_numa == 8


def test_the_numa_node_of_the_kernel_counts_before_that_of_nvml(machine: Machine) -> None:
    device = machine.root / "sys/bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("3\n", encoding="utf-8")

    assert machine.read_one(Card(A, options={"bus": "3B", "numa": 1})).numa == 3
