"""The part of the Jetson story that manifests cannot tell: NVML is found where no linker looks."""

import struct
from pathlib import Path

from vramline.probes.library import LIBRARY_NAME, LibraryKind, find_library

_TEGRA = Path("usr/lib/aarch64-linux-gnu/nvidia")
_AARCH64 = b"\x7fELF\x02\x01\x01" + bytes(11) + struct.pack("<H", 183)


def test_nvml_in_the_tegra_directory_is_found_without_help(tmp_path: Path) -> None:
    (tmp_path / _TEGRA).mkdir(parents=True)
    (tmp_path / _TEGRA / LIBRARY_NAME).write_bytes(_AARCH64)

    found = find_library(root=tmp_path, machine="aarch64")

    assert (found.kind, found.path) == (LibraryKind.TEGRA, tmp_path / _TEGRA / LIBRARY_NAME)
