"""The real nvidia-ml-py on a stand-in library: what each card says, and what it does not say."""

import threading
import time
from collections.abc import Callable

import pytest

from fakenvml import Card, Slice
from probes.machines import LIBRARY, Machine
from vramline.probes.device import (
    DeviceReading,
    Failed,
    HealthEvent,
    MemorySource,
    MigInstance,
    ProbeError,
    ProcessReading,
    Unsupported,
)
from vramline.units import Mib

A, B, C = "GPU-aaaaaaaa", "GPU-bbbbbbbb", "GPU-cccccccc"


def process(pid: int, used: int) -> ProcessReading:
    return ProcessReading(pid=pid, used=Mib(used))


def failed_codes(reading: DeviceReading) -> set[str]:
    """The codes of everything in a reading that may fail; a field that did not fail counts as `answered`."""
    fields = [
        getattr(reading, name)
        for name in ("physical_id", "model", "total", "reserved", "used", "memory_source")
    ]
    fields += [
        reading.utilization_percent,
        reading.temperature_c,
        reading.processes,
        reading.numa,
        reading.mig,
    ]
    fields += [reading.health.ecc_uncorrected, reading.links, reading.unified]
    return {field.code if isinstance(field, Failed) else "answered" for field in fields}


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


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        pytest.param(
            {"processes": 3, "graphics": 3}, Unsupported("the driver lists no processes"), id="neither"
        ),
        pytest.param({"processes": 3}, (process(2, 5),), id="only graphics"),
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


# cards that are lost, hang or change


def test_a_lost_card_hides_no_other(machine: Machine) -> None:
    probe = machine.open(Card(A, used=1), Card(B, used=2), Card(C, used=3))
    probe.read()
    machine.nvml.set(Card(A, used=1), Card(B, lost=True), Card(C, used=3))

    first, lost, last = probe.read()

    assert (first.used, last.used) == (1, 3)
    assert (lost.uuid, lost.index) == (B, 1)
    assert failed_codes(lost) == {"GPU_IS_LOST"}


def test_a_card_that_was_lost_from_the_start_has_no_uuid(machine: Machine) -> None:
    lost, other = machine.read(Card(A, lost=True), Card(B, used=2))

    assert isinstance(lost.uuid, Failed)
    assert lost.uuid.code == "GPU_IS_LOST"
    assert (lost.index, other.used) == (0, 2)


def test_a_card_that_may_not_be_opened_says_so_in_the_words_people_search_for(machine: Machine) -> None:
    refused, other = machine.read(Card(A, errors={"handle": 4}), Card(B, used=2))

    assert isinstance(refused.used, Failed)
    assert refused.used == Failed(
        "NO_PERMISSION", "failed to get device handle: NVML_ERROR_NO_PERMISSION (Insufficient Permissions)"
    )
    assert other.used == 2


def test_a_card_that_hangs_times_out_and_the_others_answer(machine: Machine) -> None:
    probe = machine.open(Card(A, used=1), Card(B, used=2), timeout_s=0.5)
    probe.read()
    machine.nvml.set(Card(A, used=1, hangs=["memory"]), Card(B, used=22))

    hung, other = probe.read()

    assert hung.uuid == A
    assert failed_codes(hung) == {"TIMEOUT"}
    assert other.used == 22


def test_a_hang_costs_one_thread_however_often_it_is_read_and_heals(machine: Machine) -> None:
    probe = machine.open(Card(A, used=1), timeout_s=0.3)
    probe.read()
    machine.nvml.set(Card(A, used=1, hangs=["all"]))
    probe.read()
    before = threading.active_count()

    answers = [probe.read()[0].used for _ in range(50)]
    after = threading.active_count()
    machine.nvml.set(Card(A, used=77))
    wait_until(lambda: probe.read()[0].used == 77)

    assert {getattr(each, "code", each) for each in answers} == {"TIMEOUT"}
    assert after == before


def test_initialising_that_hangs_is_an_error(machine: Machine) -> None:
    machine.nvml.set(hang_init=1)

    with pytest.raises(ProbeError, match="unable to initialize NVML: no answer within") as caught:
        machine.open(timeout_s=0.2)

    assert caught.value.code == "TIMEOUT"


def test_another_card_in_the_same_place_is_noticed_and_the_old_one_forgotten(machine: Machine) -> None:
    probe = machine.open(Card(A, used=1, name="NVIDIA A100"), Card(B, used=2))
    probe.read()
    machine.nvml.set(Card(C, used=3, name="NVIDIA H100"), Card(B, used=2))

    new, other = probe.read()
    (old,) = probe.read([A])

    assert (new.uuid, new.model, new.used, new.index) == (C, "NVIDIA H100", 3, 0)
    assert other.used == 2
    assert failed_codes(old) == {"NOT_FOUND"}


def test_a_card_that_is_not_listed_any_more_is_not_forgotten(machine: Machine) -> None:
    probe = machine.open(Card(A, used=1), Card(B, used=2), Card(C, used=3))
    probe.read()
    machine.nvml.set(Card(B, used=2), Card(C, used=3))

    first, second, gone = probe.read()

    assert [(each.uuid, each.index, each.used) for each in (first, second)] == [(B, 0, 2), (C, 1, 3)]
    assert gone.uuid == A
    assert failed_codes(gone) == {"GPU_NOT_FOUND"}


def test_links_lead_to_the_cards_that_are_there_now(machine: Machine) -> None:
    probe = machine.open(Card(A), Card(B))
    probe.read()
    machine.nvml.set(Card(C), Card(B))
    probe.read()

    links = probe.read([B])[0].links

    assert isinstance(links, tuple)
    assert [link.peer for link in links] == [C]


def test_a_lost_card_is_found_again_after_the_library_was_opened_anew(machine: Machine) -> None:
    probe = machine.open(Card(A, used=1), Card(B, used=2))
    probe.read()
    machine.nvml.set(Card(A, used=1), down=15)
    assert {failed_codes(each).pop() for each in probe.read()} == {"GPU_IS_LOST"}
    machine.nvml.set(Card(A, used=1), Card(B, used=5))
    machine.now += 31

    assert [reading.used for reading in probe.read()] == [1, 5]


def test_a_driver_that_went_away_is_reported_for_every_card_until_it_is_back(machine: Machine) -> None:
    probe = machine.open(Card(A, used=1))
    probe.read()
    machine.nvml.set(down=9)
    during = probe.read()
    machine.now += 31
    later = probe.read()
    machine.nvml.set(Card(A, used=4))
    machine.now += 61

    assert [failed_codes(each) for each in (*during, *later)] == [{"DRIVER_NOT_LOADED"}] * 2
    assert [reading.used for reading in probe.read()] == [4]


def test_a_silent_card_does_not_keep_a_name_that_another_answers_to(machine: Machine) -> None:
    probe = machine.open(Card(A, used=1), Card(B, used=2), Card(C, used=3))
    probe.read()
    machine.nvml.set(Card(B, used=2), Card(C, lost=True))

    answering, silent, *gone = probe.read()

    assert (answering.uuid, answering.used) == (B, 2)
    assert isinstance(silent.uuid, Failed)
    assert silent.uuid.code == "GPU_IS_LOST"
    assert [each.uuid for each in gone] == [A, C]


def test_opening_twice_is_opening_once(machine: Machine) -> None:
    probe = machine.open(Card(A, used=1))
    probe.open()
    probe.read()
    machine.nvml.set(down=1)
    probe.read()
    machine.nvml.set(Card(A, used=4))
    machine.now += 31

    assert [reading.used for reading in probe.read()] == [4]


def test_only_the_cards_asked_for_are_read(machine: Machine) -> None:
    probe = machine.open(Card(A, used=1), Card(B, used=2, hangs=["memory"]), timeout_s=5.0)

    readings = probe.read([A])

    assert [(each.uuid, each.used) for each in readings] == [(A, 1)]


def test_a_card_that_was_never_there_is_said_to_be_not_found(machine: Machine) -> None:
    probe = machine.open(Card(A, used=1))

    (reading,) = probe.read(["GPU-12345"])

    assert reading.uuid == "GPU-12345"
    assert reading.used == Failed(
        "NOT_FOUND", "failed to get device handle for UUID GPU-12345: NVML_ERROR_NOT_FOUND"
    )


def test_a_machine_without_cards_is_no_error(machine: Machine) -> None:
    assert machine.open().read() == []


# what cannot be opened


@pytest.mark.parametrize(
    ("code", "name", "text", "advice"),
    [
        pytest.param(9, "DRIVER_NOT_LOADED", "Driver Not Loaded", "Load the driver", id="driver not loaded"),
        pytest.param(4, "NO_PERMISSION", "Insufficient Permissions", "privileged", id="no permission"),
        pytest.param(18, "LIB_RM_VERSION_MISMATCH", "mismatch", "Restart the agent", id="driver was updated"),
        pytest.param(15, "GPU_IS_LOST", "GPU is lost", "Xid 79", id="lost"),
        pytest.param(999, "UNKNOWN", "Unknown Error", "kernel's log", id="no reason given"),
    ],
)
def test_a_library_that_does_not_initialise_says_why_and_what_to_do(
    code: int, name: str, text: str, advice: str, machine: Machine
) -> None:
    machine.nvml.set(init=code)

    with pytest.raises(ProbeError) as caught:
        machine.open()

    message = str(caught.value)
    assert caught.value.code == name
    assert message.startswith(f"unable to initialize NVML: NVML_ERROR_{name} (")
    assert text in message
    assert f"{machine.root / LIBRARY} (used)" in message
    assert advice in message


def test_a_probe_that_did_not_open_may_be_opened_later(machine: Machine) -> None:
    machine.nvml.set(init=9)
    with pytest.raises(ProbeError):
        machine.open()
    machine.nvml.set(Card(A, used=5))

    machine.probe.open()

    assert [each.used for each in machine.probe.read()] == [5]


def test_no_library_at_all_names_every_path(machine: Machine) -> None:
    (machine.root / LIBRARY).unlink()

    with pytest.raises(ProbeError) as caught:
        machine.open()

    message = str(caught.value)
    assert caught.value.code == "LIBRARY_NOT_FOUND"
    assert message.startswith("unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND")
    assert f"{machine.root / LIBRARY} (not there)" in message
    assert f"{machine.root}/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1 (not there)" in message


# faults that the driver reports


def test_faults_are_reported_with_their_card(machine: Machine) -> None:
    probe = machine.open(Card(A), Card(B))
    machine.nvml.report_xid(B, 79)

    assert probe.events(10.0) == [HealthEvent(uuid=B, xid=79, text="Xid 79: the card has fallen off the bus")]


@pytest.mark.parametrize(
    "cards",
    [
        pytest.param([Card(A)], id="nothing happens"),
        pytest.param([Card(A, errors={"events": 3})], id="no events"),
    ],
)
def test_waiting_for_faults_ends(cards: list[Card], machine: Machine) -> None:
    assert machine.open(*cards).events(0.05) == []


def test_waiting_for_faults_does_not_keep_cards_from_being_read(machine: Machine) -> None:
    probe = machine.open(Card(A, used=3))
    waiting = threading.Thread(target=probe.events, args=(30.0,))
    waiting.start()

    readings = probe.read()
    probe.close()
    waiting.join(10.0)

    assert [each.used for each in readings] == [3]
    assert not waiting.is_alive()


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)
