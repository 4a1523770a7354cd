"""AMD's cards, on a stand-in for AMD's package: see `amdsmi_stand_in` for what that proves and what not."""

import sys
from typing import Any

import pytest

from probes.amdsmi_stand_in import CARD, AmdSmiLibraryException, install
from vramline.probes.amd import AmdProbe
from vramline.probes.device import (
    DeviceReading,
    Failed,
    MemorySource,
    ProbeError,
    ProcessReading,
    Unsupported,
)
from vramline.probes.options import ProbeOptions
from vramline.units import Mib

REFUSED = AmdSmiLibraryException("AMDSMI_STATUS_NO_PERM - Permission Denied")
UNKNOWN = AmdSmiLibraryException("AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported")


def read(patch: pytest.MonkeyPatch, *cards: dict[str, Any]) -> list[DeviceReading]:
    install(patch, *cards)
    probe = AmdProbe(ProbeOptions(timeout_s=20.0))
    probe.open()
    try:
        return probe.read()
    finally:
        probe.close()


def test_a_card_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    (card,) = read(monkeypatch, CARD)

    assert (card.vendor, card.index, card.physical_id) == ("amd", 0, "0000:0c:00.0")
    assert (card.model, card.total, card.used) == ("AMD Instinct MI300X", 196_592, 6144)
    assert (card.utilization_percent, card.temperature_c, card.numa) == (45, 51, 1)
    assert card.processes == (ProcessReading(pid=4711, used=Mib(6144)),)
    assert (card.health.ecc_corrected, card.health.ecc_uncorrected) == (3, 0)
    assert (card.memory_source, card.reserved) == (
        MemorySource.AMDSMI,
        Unsupported("amdgpu does not tell it apart"),
    )


@pytest.mark.parametrize(
    ("answers", "field", "expected"),
    [
        pytest.param({"amdsmi_get_gpu_memory_usage": REFUSED}, "used", "NO_PERMISSION", id="refused"),
        pytest.param({"amdsmi_get_gpu_memory_usage": 2**50}, "used", "NONSENSE", id="more than there is"),
        pytest.param({"amdsmi_get_gpu_memory_total": 0}, "total", "NONSENSE", id="no memory at all"),
        pytest.param(
            {"amdsmi_get_temp_metric": 51_000}, "temperature_c", "NONSENSE", id="thousandths of a degree"
        ),
        pytest.param(
            {"amdsmi_get_gpu_process_list": UNKNOWN}, "processes", "unsupported", id="no process list"
        ),
        pytest.param(
            {"amdsmi_get_gpu_activity": {"gfx_activity": "N/A"}},
            "utilization_percent",
            "unsupported",
            id="N/A",
        ),
        pytest.param({"amdsmi_get_gpu_asic_info": {}}, "model", "UNREADABLE", id="a key that is not there"),
    ],
)
def test_one_answer_that_fails_spoils_no_other(
    answers: dict[str, Any], field: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (card,) = read(monkeypatch, CARD | answers)

    answer = getattr(card, field)
    assert ("unsupported" if isinstance(answer, Unsupported) else answer.code) == expected
    assert card.uuid == CARD["amdsmi_get_gpu_device_uuid"]


def test_a_card_that_does_not_answer_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    silent, other = read(monkeypatch, CARD | {"amdsmi_get_gpu_device_uuid": REFUSED}, CARD)

    assert isinstance(silent.used, Failed)
    assert silent.used.code == "NO_PERMISSION"
    assert other.used == 6144


def test_a_driver_that_is_not_loaded_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, init=AmdSmiLibraryException("AMDSMI_STATUS_DRIVER_NOT_LOADED - Driver not loaded"))

    with pytest.raises(ProbeError, match="unable to initialize amdsmi") as caught:
        AmdProbe().open()

    assert caught.value.code == "DRIVER_NOT_LOADED"


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)

    with pytest.raises(ProbeError, match=r"vramline\[amd\]") as caught:
        AmdProbe().open()

    assert caught.value.code == "LIBRARY_NOT_FOUND"
    assert "/opt/rocm/lib/libamd_smi.so" in caught.value.tried
