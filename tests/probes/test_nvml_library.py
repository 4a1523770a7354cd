"""Loading NVML from a folder that no linker knows, with a library beside it that it needs."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from fakenvml import Card, FakeNvml, install_with_dependency

TEGRA = Path("usr/lib/aarch64-linux-gnu/nvidia")

READ = """
import sys
from pathlib import Path
from vramline.probes.device import ProbeError
from vramline.probes.nvidia import NvidiaProbe
from vramline.probes.options import ProbeOptions

probe = NvidiaProbe(ProbeOptions(root=Path(sys.argv[1]), library=Path(sys.argv[2]) if sys.argv[2] else None))
try:
    probe.open()
except ProbeError as error:
    sys.exit(str(error))
print(probe.source, [(each.uuid, each.used) for each in probe.read()])
"""


def read_in_a_process_of_its_own(root: Path, nvml: FakeNvml) -> subprocess.CompletedProcess[str]:
    """A library that was loaded stays loaded: each case needs a process that has none yet."""
    environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    # On a Jetson the folder is found; elsewhere its libraries are of another kind of machine, so it is named.
    named = "" if platform.machine() == "aarch64" else f"/{TEGRA}"
    command = [sys.executable, "-c", READ, str(root), named]
    return subprocess.run(
        command, env=environment | nvml.environment(), capture_output=True, text=True, check=False
    )


@pytest.fixture
def root(fake_nvml: FakeNvml, tmp_path: Path) -> Path:
    fake_nvml.set(Card("GPU-1", used=5))
    install_with_dependency(tmp_path / "root" / TEGRA)
    return tmp_path / "root"


def test_what_lies_beside_the_library_is_loaded_with_it(root: Path, fake_nvml: FakeNvml) -> None:
    done = read_in_a_process_of_its_own(root, fake_nvml)

    assert done.stderr == ""
    assert str(root / TEGRA / "libnvidia-ml.so.1") in done.stdout
    assert "[('GPU-1', 5)]" in done.stdout


def test_what_is_missing_beside_it_is_named(root: Path, fake_nvml: FakeNvml) -> None:
    (root / TEGRA / "libnvrm_gpu.so").unlink()

    done = read_in_a_process_of_its_own(root, fake_nvml)

    assert done.returncode == 1
    assert done.stderr.startswith("unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND")
    assert "libnvrm_gpu.so: cannot open shared object file" in done.stderr


def test_another_library_of_that_name_is_no_nvml(root: Path, fake_nvml: FakeNvml) -> None:
    library = root / TEGRA / "libnvidia-ml.so.1"
    library.write_bytes((root / TEGRA / "libnvrm_gpu.so").read_bytes())

    done = read_in_a_process_of_its_own(root, fake_nvml)

    assert "unable to initialize NVML: NVML_ERROR_FUNCTION_NOT_FOUND" in done.stderr


def test_a_library_that_is_cut_off_is_not_loaded(root: Path, fake_nvml: FakeNvml) -> None:
    library = root / TEGRA / "libnvidia-ml.so.1"
    library.write_bytes(library.read_bytes()[:4096])

    done = read_in_a_process_of_its_own(root, fake_nvml)

    assert f"{library} (cut off)" in done.stderr
    assert "ERROR_LIBRARY_NOT_FOUND" in done.stderr


def test_a_card_that_hangs_keeps_no_process_from_ending(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(Card("GPU-1", hangs=["memory"]), Card("GPU-2", used=7))
    read = (
        "import sys; from pathlib import Path\n"
        "from vramline.probes.nvidia import NvidiaProbe\n"
        "from vramline.probes.options import ProbeOptions\n"
        "probe = NvidiaProbe(ProbeOptions(library=Path(sys.argv[1])))\n"
        "probe.open()\n"
        "print([getattr(each.used, 'code', each.used) for each in probe.read()])\n"
        "probe.close()\n"
    )
    command = [sys.executable, "-c", read, str(fake_nvml.library)]

    done = subprocess.run(
        command,
        env=os.environ | fake_nvml.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "['TIMEOUT', 7]\n", "")
