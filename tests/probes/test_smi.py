"""What nvidia-smi prints, and what it prints instead. Here it is a script that prints what a test says."""

import os
import shlex
from pathlib import Path

import pytest

from vramline.probes.device import (
    DeviceReading,
    Failed,
    MemorySource,
    ProbeError,
    ProcessReading,
    Unsupported,
)
from vramline.probes.options import ProbeOptions
from vramline.probes.smi import FIELDS, SmiProbe, parse_cards, parse_processes
from vramline.units import Mib

A, B = "GPU-aaaaaaaa", "GPU-bbbbbbbb"
FIRST = f"0, {A}, NVIDIA H100 80GB HBM3, 00000000:3B:00.0, 81559, 6144, 550, 45, 51, Disabled, 3, 0"
SECOND = f"1, {B}, NVIDIA H100 80GB HBM3, 00000000:4C:00.0, 81559, 0, 550, 0, 31, Enabled, 0, 0"


def one(line: str, processes: str | Failed = "") -> DeviceReading:
    read = parse_cards(line, FIELDS, processes)
    assert isinstance(read, list)
    (card,) = read
    return card


def test_a_card_is_read() -> None:
    card = one(FIRST, f"{A}, 4711, 6144\n{B}, 4712, 5\n")

    assert (card.index, card.uuid, card.physical_id) == (0, A, "0000:3b:00.0")
    assert (card.total, card.used, card.reserved) == (81_559, 6144, 550)
    assert (card.utilization_percent, card.temperature_c) == (45, 51)
    assert (card.health.ecc_corrected, card.health.ecc_uncorrected) == (3, 0)
    assert (card.mig_enabled, card.memory_source) == (False, MemorySource.SMI)
    assert card.processes == (ProcessReading(pid=4711, used=Mib(6144)),)


def test_several_cards_are_told_apart() -> None:
    read = parse_cards(f"{FIRST}\n{SECOND}\n", FIELDS, f"{B}, 7, 10")

    assert isinstance(read, list)
    assert [card.uuid for card in read] == [A, B]
    assert [card.processes for card in read] == [(), (ProcessReading(pid=7, used=Mib(10)),)]
    assert read[1].mig_enabled is True


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        pytest.param("[N/A]", Unsupported("N/A"), id="N/A"),
        pytest.param("[Not Supported]", Unsupported("Not Supported"), id="not supported"),
        pytest.param("[GPU is lost]", Failed("GPU_IS_LOST", "GPU is lost"), id="lost"),
        pytest.param("[Unknown Error]", Failed("UNKNOWN", "Unknown Error"), id="unknown error"),
        pytest.param(
            "[Insufficient Permissions]", Failed("NO_PERMISSION", "Insufficient Permissions"), id="refused"
        ),
        pytest.param("ERR!", Failed("UNREADABLE", "'ERR!' is no number"), id="no number"),
        pytest.param("", Failed("UNREADABLE", "an empty field"), id="empty"),
        pytest.param(
            "99999999", Failed("NONSENSE", "used 104857598951424 bytes of 81559 MiB"), id="too much"
        ),
    ],
)
def test_what_is_no_figure_is_not_zero(word: str, expected: object) -> None:
    assert one(FIRST.replace("6144", word)).used == expected


@pytest.mark.parametrize(
    "output",
    [
        pytest.param("No devices were found", id="a sentence"),
        pytest.param(FIRST[:40], id="cut off"),
        pytest.param(f"{FIRST}\n{FIRST}, 17", id="one field too many"),
    ],
)
def test_broken_output_is_no_list_of_cards(output: str) -> None:
    read = parse_cards(output, FIELDS, "")

    assert isinstance(read, Failed)
    assert read.code == "UNREADABLE"


@pytest.mark.parametrize(
    ("output", "code"),
    [
        pytest.param(f"{A}, 4711", "UNREADABLE", id="cut off"),
        pytest.param(f"{A}, 0, 5", "NONSENSE", id="process 0"),
        pytest.param(f"{A}, many, 5", "UNREADABLE", id="no number"),
    ],
)
def test_half_a_list_of_processes_is_no_list(output: str, code: str) -> None:
    read = parse_processes(f"{A}, 1, 2\n{output}", A, Mib(100))

    assert isinstance(read, Failed)
    assert read.code == code


def test_a_process_whose_memory_is_not_told_holds_an_unknown_amount() -> None:
    assert parse_processes(f"{A}, 5, [N/A]", A, Mib(100)) == (ProcessReading(pid=5, used=Unsupported("N/A")),)


# the program


def program(folder: Path, *, cards: str, processes: str = "", more: str = "") -> SmiProbe:
    """A stand-in for nvidia-smi."""
    script = folder / "nvidia-smi"
    lines = ["#!/bin/sh", more, 'case "$1" in', f"--query-gpu=*) printf '%s\\n' '{cards}' ;;"]
    script.write_text(
        "\n".join([*lines, f"*) printf '%s\\n' '{processes}' ;;", "esac", ""]), encoding="utf-8"
    )
    script.chmod(0o755)
    return SmiProbe(ProbeOptions(timeout_s=20.0), program=str(script))


def test_cards_are_read_through_the_program(tmp_path: Path) -> None:
    probe = program(tmp_path, cards=FIRST, processes=f"{A}, 4711, 6144")
    probe.open()

    assert [(card.uuid, card.used) for card in probe.read()] == [(A, 6144)]
    assert probe.source == f"nvidia-smi, {tmp_path}/nvidia-smi"


def test_a_card_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    probe = program(tmp_path, cards=FIRST)

    (card,) = probe.read([B])

    assert card.used == Failed("NOT_FOUND", f"no card of nvidia has the UUID {B}")


def test_fields_that_an_older_version_does_not_know_are_left_out(tmp_path: Path) -> None:
    older = FIRST.replace(" 550,", "")
    said = 'Field "memory.reserved" is not a valid field to query.'
    refuse = f"case \"$1\" in *memory.reserved*) echo '{said}'; exit 2 ;; esac"
    probe = program(tmp_path, cards=older, more=refuse)

    (card,) = probe.read()

    assert (card.total, card.used) == (81_559, 6144)
    assert card.reserved == Unsupported("nvidia-smi does not know memory.reserved")


@pytest.mark.parametrize(
    ("said", "code"),
    [
        pytest.param(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            "DRIVER_NOT_LOADED",
            id="no driver",
        ),
        pytest.param(
            "Failed to initialize NVML: Driver/library version mismatch",
            "LIB_RM_VERSION_MISMATCH",
            id="updated",
        ),
        pytest.param("Failed to initialize NVML: Insufficient Permissions", "NO_PERMISSION", id="refused"),
        pytest.param("Segmentation fault", "UNREADABLE", id="something else"),
    ],
)
def test_a_program_that_fails_says_why(said: str, code: str, tmp_path: Path) -> None:
    probe = program(tmp_path, cards="", more=f"echo {shlex.quote(said)}; exit 9")

    with pytest.raises(ProbeError, match="unable to run nvidia-smi") as caught:
        probe.open()

    assert caught.value.code == code


def test_a_program_that_hangs_times_out_and_cards_known_before_stay(tmp_path: Path) -> None:
    gate, passed = tmp_path / "gate", tmp_path / "passed"
    os.mkfifo(gate)
    probe = program(tmp_path, cards=FIRST)
    probe.read()
    program(tmp_path, cards=FIRST, more=f"[ -e {passed} ] || {{ touch {passed}; read line < {gate}; }}")
    slow = SmiProbe(ProbeOptions(timeout_s=0.2), program=str(tmp_path / "nvidia-smi"))
    slow._known = probe._known

    (card,) = slow.read()
    with gate.open("w", encoding="ascii") as opened:
        opened.write("go\n")

    assert card.uuid == A
    assert isinstance(card.used, Failed)
    assert card.used.code == "TIMEOUT"


def test_no_program_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="not in PATH"):
        SmiProbe(program=str(tmp_path / "nvidia-smi")).open()
