"""Cards that are lost, hang or change; libraries that do not open; faults that the driver reports."""

import threading
import time
from collections.abc import Callable

import pytest

from fakenvml import Card
from probes.machines import LIBRARY, Machine, failed_codes
from vramline.probes.device import Failed, HealthEvent, ProbeError

A, B, C = "GPU-aaaaaaaa", "GPU-bbbbbbbb", "GPU-cccccccc"


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
    probe = machine.open(Card(A, used=1), Card(B, used=2), timeout_s=2.0)
    probe.read()
    machine.nvml.set(Card(A, used=1, hangs=["memory"]), Card(B, used=22))

    hung, other = probe.read()

    assert hung.uuid == A
    assert failed_codes(hung) == {"TIMEOUT"}
    assert other.used == 22


@pytest.mark.parametrize("question", ["handle", "uuid", "memory"])
def test_a_card_that_hangs_from_the_start_holds_up_no_other(question: str, machine: Machine) -> None:
    probe = machine.open(Card(A, used=1), Card(B, used=2, hangs=[question]), Card(C, used=3), timeout_s=2.0)

    first, hung, last = probe.read()

    assert (first.used, last.used) == (1, 3)
    assert failed_codes(hung) == {"TIMEOUT"}


def test_a_hang_costs_one_thread_however_often_it_is_read_and_heals(machine: Machine) -> None:
    probe = machine.open(Card(A, used=1), timeout_s=2.0)
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
    machine.nvml.set(Card(A, used=1), Card(B, used=5), generation=1)
    lost = probe.read()
    machine.now += 29
    still_lost = probe.read()
    machine.now += 2

    assert [failed_codes(each) for each in (*lost, *still_lost)] == [{"GPU_IS_LOST"}] * 4
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


def test_looks_at_one_card_do_not_put_off_the_healing_of_another(machine: Machine) -> None:
    probe = machine.open(Card(A, used=1), Card(B, used=2))
    probe.read()
    machine.nvml.set(Card(A, used=1), Card(B, lost=True))
    probe.read()
    machine.now += 29
    assert [reading.used for reading in probe.read([A])] == [1]
    machine.nvml.set(Card(A, used=1), Card(B, used=6), generation=1)
    machine.now += 2

    assert [reading.used for reading in probe.read()] == [1, 6]


def test_opening_twice_is_opening_once(machine: Machine) -> None:
    probe = machine.open(Card(A, used=1))
    probe.open()
    probe.read()
    machine.nvml.set(Card(A, used=4), generation=1)
    probe.read()
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
