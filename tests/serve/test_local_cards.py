"""The cards of this machine, as `vramline doctor` finds them."""

import platform
import shutil
from pathlib import Path

import pytest

from fakenvml import Card, FakeNvml
from vramline.probes.options import ProbeOptions
from vramline.serve.findings import Finding
from vramline.serve.local_cards import examine_local_cards

LIBRARY = Path("usr/lib", f"{platform.machine()}-linux-gnu", "libnvidia-ml.so.1")


@pytest.fixture
def root(fake_nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with NVIDIA's driver."""
    monkeypatch.setenv("FAKENVML_STATE", str(fake_nvml.state))
    monkeypatch.setenv("PATH", str(tmp_path))  # whoever runs this may have an nvidia-smi
    root = tmp_path / "machine"
    (root / "dev").mkdir(parents=True)
    (root / "dev/nvidiactl").touch()
    (root / LIBRARY).parent.mkdir(parents=True)
    shutil.copy(fake_nvml.library, root / LIBRARY)
    return root


def examine(root: Path) -> list[Finding]:
    return list(examine_local_cards(ProbeOptions(root=root, timeout_s=20.0)))


def test_every_card_is_listed_with_the_library_it_is_read_through(root: Path, fake_nvml: FakeNvml) -> None:
    fake_nvml.set(Card("GPU-1", total=8192, used=6144))

    assert [(each.level, each.message) for each in examine(root)] == [
        ("ok", f"1 card(s) of nvidia are read through NVML, {root / LIBRARY} (standard)"),
        ("ok", "GPU 0 GPU-1 NVIDIA H100 80GB HBM3: total 8,192 MiB, used 6,144 MiB"),
    ]


def test_a_card_that_does_not_answer_is_a_problem_with_advice(root: Path, fake_nvml: FakeNvml) -> None:
    fake_nvml.set(Card("GPU-1"), Card("GPU-2", errors={"memory": 15, "temperature": 15}))

    *_, found = examine(root)

    assert (found.level, found.message) == (
        "problem",
        "GPU 1 GPU-2: GPU_IS_LOST, failed to get memory: NVML_ERROR_GPU_IS_LOST (GPU is lost)",
    )
    assert "Xid 79" in found.advice


def test_what_cannot_be_asked_is_not_told(root: Path, fake_nvml: FakeNvml) -> None:
    fake_nvml.set(Card("GPU-1", used=None))

    assert examine(root)[-1].message.endswith(": total not told, used not told")


def test_a_driver_that_is_not_loaded_is_a_problem(root: Path, fake_nvml: FakeNvml) -> None:
    fake_nvml.set(init=9)

    (found,) = examine(root)

    assert found.level == "problem"
    assert found.message.startswith(
        "unable to initialize NVML: NVML_ERROR_DRIVER_NOT_LOADED (Driver Not Loaded)"
    )
    assert found.advice.startswith("Load the driver")


def test_a_missing_library_is_a_problem_with_every_path(root: Path) -> None:
    (root / LIBRARY).unlink()

    (found,) = examine(root)

    assert found.level == "problem"
    assert f"{root / LIBRARY} (not there)" in found.message
    assert "Install the NVIDIA driver" in found.advice


def test_cards_that_nobody_reads_are_a_warning(tmp_path: Path) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    for name, value in (("vendor", "0x9999"), ("class", "0x120000")):
        (device / name).write_text(value, encoding="ascii")

    (found,) = examine(tmp_path)

    assert (found.level, found.message.split(":")[0]) == ("warning", "metax")


def test_a_machine_without_cards_is_fine(tmp_path: Path) -> None:
    (found,) = examine(tmp_path)

    assert (found.level, found.message.split(";")[0]) == ("ok", "this machine has no GPU")
