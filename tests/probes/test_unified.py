"""Boards whose GPU has no memory of its own: the ladder of sources, rung by rung."""

from pathlib import Path

import pytest

from fakenvml import Card
from probes.machines import Machine
from vramline.probes.device import Failed, MemorySource, ProcessReading, Unsupported
from vramline.probes.unified import read_gpu_part, read_load, read_pool, read_temperature
from vramline.units import Mib

MEMINFO = "MemTotal:       1048576 kB\nMemFree:        102400 kB\nMemAvailable:   614400 kB\n"
LARGER = "MemTotal:       4194304 kB\nMemFree:        102400 kB\nMemAvailable:   2097152 kB\n"
CLIENTS = """CLIENT                        PROCESS      PID        SIZE
user                          my app     5120     204800K
user                          my app     5120       1024K
user                            Xorg     1403      16384K
total                                             222208K
"""


def write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def enter_host_namespace(root: Path) -> None:
    link = root / "proc/self/ns/pid"
    link.parent.mkdir(parents=True)
    link.symlink_to("pid:[4026531836]")


def test_the_pool_is_what_the_host_has_and_page_cache_is_free(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", MEMINFO)

    assert read_pool(tmp_path, Mib(128)) == (1024, 128, 424)


@pytest.mark.parametrize(
    ("meminfo", "code"),
    [
        pytest.param(None, "UNREADABLE", id="no file"),
        pytest.param("", "UNREADABLE", id="empty"),
        pytest.param("MemTotal: 1048576 kB\nMemFree: 5 kB\n", "UNREADABLE", id="no MemAvailable"),
        pytest.param("MemTotal: 0 kB\nMemAvailable: 0 kB\n", "NONSENSE", id="zeros"),
        pytest.param(
            "MemTotal: 1024 kB\nMemAvailable: 2048 kB\n", "NONSENSE", id="more available than there is"
        ),
    ],
)
def test_a_pool_that_cannot_be_read_is_not_zero(meminfo: str | None, code: str, tmp_path: Path) -> None:
    if meminfo is not None:
        write(tmp_path, "proc/meminfo", meminfo)

    used = read_pool(tmp_path, Mib(0)).used

    assert isinstance(used, Failed)
    assert used.code == code


def test_a_reserve_larger_than_the_machine_is_said(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", MEMINFO)

    reserved = read_pool(tmp_path, Mib(2048)).reserved

    assert reserved == Failed("NONSENSE", "a reserve of 2048 MiB for the host, which has 1024 MiB")


def test_the_processes_of_nvml_come_first(tmp_path: Path) -> None:
    write(tmp_path, "sys/kernel/debug/nvmap/iovmm/clients", CLIENTS)
    listed = (ProcessReading(pid=1, used=Mib(100)), ProcessReading(pid=2, used=Mib(50)))

    assert read_gpu_part(tmp_path, listed, total=Mib(1024)) == (150, MemorySource.NVML_PROCESSES, listed)


@pytest.mark.parametrize(
    "listed",
    [
        pytest.param(Unsupported(), id="NVML lists none"),
        pytest.param(Failed("NONSENSE"), id="NVML lists nonsense"),
        pytest.param((ProcessReading(pid=1),), id="NVML does not know how much"),
    ],
)
def test_then_the_clients_of_nvmap(listed: object, tmp_path: Path) -> None:
    write(tmp_path, "sys/kernel/debug/nvmap/iovmm/clients", CLIENTS)

    part = read_gpu_part(tmp_path, listed, total=Mib(1024))  # type: ignore[arg-type]

    assert (part.used, part.source) == (217, MemorySource.NVMAP)
    assert part.processes == (ProcessReading(pid=1403, used=Mib(16)), ProcessReading(pid=5120, used=Mib(201)))


def test_then_the_sum_that_the_kernel_shows(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", MEMINFO + "NvMapMemUsed:   102400 kB\n")

    part = read_gpu_part(tmp_path, Unsupported("none"), total=Mib(1024))

    assert part == (100, MemorySource.NVMAP, Unsupported("none"))


def test_and_nothing_is_not_zero(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", MEMINFO)

    part = read_gpu_part(tmp_path, Unsupported(), total=Mib(1024))

    assert isinstance(part.used, Unsupported)
    assert isinstance(part.source, Unsupported)


def test_no_processes_is_nothing_used_only_where_all_processes_are_seen(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", MEMINFO)
    inside = read_gpu_part(tmp_path, (), total=Mib(1024)).used
    enter_host_namespace(tmp_path)

    assert isinstance(inside, Unsupported)
    assert read_gpu_part(tmp_path, (), total=Mib(1024)).used == 0


def test_load_is_in_tenths_of_a_percent(tmp_path: Path) -> None:
    write(tmp_path, "sys/devices/platform/bus@0/17000000.gpu/load", "455\n")

    assert read_load(tmp_path) == 46


def test_the_thermal_zone_of_the_gpu_is_found(tmp_path: Path) -> None:
    write(tmp_path, "sys/class/thermal/thermal_zone0/type", "cpu-thermal\n")
    write(tmp_path, "sys/class/thermal/thermal_zone0/temp", "51000\n")
    write(tmp_path, "sys/class/thermal/thermal_zone1/type", "gpu-thermal\n")
    write(tmp_path, "sys/class/thermal/thermal_zone1/temp", "47125\n")

    assert read_temperature(tmp_path) == 47


@pytest.mark.parametrize("text", ["", "none", "-5"], ids=["empty", "a word", "below zero"])
def test_a_load_that_is_no_number_is_not_zero(text: str, tmp_path: Path) -> None:
    write(tmp_path, "sys/devices/platform/gpu.0/load", text)

    assert isinstance(read_load(tmp_path), Unsupported)


@pytest.mark.parametrize(
    "card",
    [
        pytest.param(
            Card("GPU-1", name="Orin (nvgpu)", total=0, used=0), id="zeros instead of not supported"
        ),
        pytest.param(
            Card("GPU-1", name="A later board", used=None, options={"cc": "8.7"}), id="by its capability"
        ),
        pytest.param(
            Card("GPU-1", name="NVIDIA GB10", total=900, used=7), id="figures of its own that differ"
        ),
    ],
)
def test_a_unified_board_is_known_however_it_answers(card: Card, machine: Machine) -> None:
    write(machine.root, "proc/meminfo", LARGER)
    machine.nvml.set(card)

    reading = machine.open().read()[0]

    assert (reading.unified, reading.total, reading.used) == (True, 4096, 2048)


def test_a_card_with_memory_of_its_own_never_takes_that_of_the_host(machine: Machine) -> None:
    write(machine.root, "proc/meminfo", LARGER)

    reading = machine.read_one(Card("GPU-1", used=None))

    assert reading.unified is False
    assert (reading.total, reading.used) == (Unsupported("Not Supported"), Unsupported("Not Supported"))


def test_where_the_host_cannot_be_read_nvml_is_asked(machine: Machine) -> None:
    reading = machine.read_one(Card("GPU-1", name="NVIDIA GB10", total=900, used=7))

    assert (reading.total, reading.used, reading.memory_source) == (900, 7, MemorySource.NVML)
