"""Six boards, the same questions: what each answers, and where its memory figures come from."""

import pytest

from probes.machines import Machine
from vramline.probes.device import DeviceReading, Failed, MemorySource, Unsupported

MEMORY = ("total", "reserved", "used", "memory_source", "unified", "used_by_gpu", "used_by_gpu_source")


def read_board(machine: Machine, board: str) -> list[DeviceReading]:
    machine.become(board)
    return machine.open().read()


def memory(reading: DeviceReading) -> list[object]:
    """The memory figures; None: not supported."""
    answers = [getattr(reading, name) for name in MEMORY]
    assert not any(isinstance(answer, Failed) for answer in answers)
    return [None if isinstance(answer, Unsupported) else answer for answer in answers]


@pytest.mark.parametrize(
    ("board", "cards", "expected"),
    [
        pytest.param("h100", 8, [81_559, 550, 6144, MemorySource.NVML, False, None, None], id="H100"),
        pytest.param(
            "a100-mig", 2, [40_960, 624, 9822, MemorySource.NVML, False, None, None], id="A100 with MIG"
        ),
        pytest.param(
            "time-sliced", 1, [32_607, 480, 18_122, MemorySource.NVML, False, None, None], id="shared"
        ),
        pytest.param(
            "orin", 1, [30_615, 1024, 7168, MemorySource.HOST, True, 4112, MemorySource.NVMAP], id="Orin"
        ),
        pytest.param(
            "thor",
            1,
            [125_811, 1024, 29_812, MemorySource.HOST, True, 21_676, MemorySource.NVML_PROCESSES],
            id="Thor",
        ),
        pytest.param(
            "gb10",
            1,
            [122_572, 1024, 68_301, MemorySource.HOST, True, 61_440, MemorySource.NVML_PROCESSES],
            id="GB10",
        ),
    ],
)
def test_memory_of_a_board(board: str, cards: int, expected: list[object], machine: Machine) -> None:
    readings = read_board(machine, board)

    assert len(readings) == cards
    assert memory(readings[0]) == expected


@pytest.mark.parametrize(
    ("board", "expected"),
    [
        pytest.param("h100", (45, 31, {4711: 6144}), id="H100"),
        pytest.param("a100-mig", (None, 35, {2001: 9728}), id="A100 with MIG"),
        pytest.param("time-sliced", (71, 58, {988: 212, 3101: 8000, 3102: 8000, 3103: 1910}), id="shared"),
        pytest.param("orin", (46, 47, {1403: 16, 5120: 4096}), id="Orin, from sysfs and debugfs"),
        pytest.param("thor", (33, 49, {1510: 96, 6001: 20_480, 6002: 1100}), id="Thor"),
        pytest.param("gb10", (96, 62, {7100: 61_440}), id="GB10"),
    ],
)
def test_what_runs_on_a_board(board: str, expected: object, machine: Machine) -> None:
    reading = read_board(machine, board)[0]

    assert isinstance(reading.processes, tuple)
    utilization = reading.utilization_percent
    assert (
        None if isinstance(utilization, Unsupported) else utilization,
        reading.temperature_c,
        {each.pid: each.used for each in reading.processes},
    ) == expected


def test_every_pair_of_cards_behind_a_switch_is_linked(machine: Machine) -> None:
    readings = read_board(machine, "h100")

    links = [link for reading in readings if isinstance(reading.links, tuple) for link in reading.links]
    assert len(links) == 8 * 7
    assert all(link.nvlink is True for link in links)
    assert {link.ancestor for link in links} == {"single", "node", "system"}


def test_the_slices_of_a_board(machine: Machine) -> None:
    partitioned, whole = read_board(machine, "a100-mig")

    assert isinstance(partitioned.mig, tuple)
    assert [(each.gpu_instance, each.total, each.used) for each in partitioned.mig] == [
        (1, 19_968, 9728),
        (5, 9856, 37),
        (13, 4864, 19),
    ]
    assert (whole.mig_enabled, whole.mig) == (False, ())


def test_free_memory_of_a_unified_board_is_what_the_host_has_left_above_its_reserve(machine: Machine) -> None:
    reading = read_board(machine, "thor")[0]

    available = 98_304_000 // 1024
    assert isinstance(reading.total, int)
    assert isinstance(reading.reserved, int)
    assert isinstance(reading.used, int)
    assert reading.total - reading.reserved - reading.used == available - 1024 - 1  # rounded to the safe side
