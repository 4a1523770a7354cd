"""Finding the NVML library in file systems made up for the test."""

import struct
from pathlib import Path, PurePosixPath

import pytest

from vramline.probes.library import LIBRARY_NAME, LibraryKind, NvmlLibraryNotFoundError, find_library

X86, ARM = "x86_64", "aarch64"
STANDARD_X86 = f"/usr/lib/x86_64-linux-gnu/{LIBRARY_NAME}"
STANDARD_ARM = f"/usr/lib/aarch64-linux-gnu/{LIBRARY_NAME}"
TEGRA = f"/usr/lib/aarch64-linux-gnu/nvidia/{LIBRARY_NAME}"
OLD_TEGRA = f"/usr/lib/aarch64-linux-gnu/tegra/{LIBRARY_NAME}"
DRIVER = f"/run/nvidia/driver/usr/lib/x86_64-linux-gnu/{LIBRARY_NAME}"
CACHED = f"/opt/nvidia/lib/{LIBRARY_NAME}"


def install(root: Path, path: str, machine: str = X86) -> Path:
    """Put the first bytes of a library there."""
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"\x7fELF" + bytes(14) + {X86: 62, ARM: 183, "i386": 3}[machine].to_bytes(2, "little"))
    return file


def write_linker_cache(root: Path, *libraries: tuple[str, str], before: bytes = b"") -> None:
    """Write /etc/ld.so.cache with (name, path) entries, after an older table where given."""
    texts = b""
    entries = b""
    start = 48 + 24 * len(libraries)
    for name, path in libraries:
        name_at, path_at = start + len(texts), start + len(texts) + len(name) + 1
        texts += name.encode() + b"\0" + path.encode() + b"\0"
        entries += struct.pack("<iIIIQ", 0x0303, name_at, path_at, 0, 0)
    header = b"glibc-ld.so.cache1.1" + struct.pack("<II", len(libraries), len(texts)) + bytes(20)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/ld.so.cache").write_bytes(before + header + entries + texts)


@pytest.mark.parametrize(
    ("path", "machine", "kind"),
    [
        pytest.param(
            f"/usr/lib64/{LIBRARY_NAME}", X86, LibraryKind.LINKER, id="a built-in folder of the linker"
        ),
        pytest.param(STANDARD_X86, X86, LibraryKind.STANDARD, id="the standard folder"),
        pytest.param(STANDARD_ARM, ARM, LibraryKind.STANDARD, id="the standard folder on ARM"),
        pytest.param(TEGRA, ARM, LibraryKind.TEGRA, id="a Jetson, unknown to the linker"),
        pytest.param(OLD_TEGRA, ARM, LibraryKind.TEGRA, id="an older Jetson"),
        pytest.param(DRIVER, X86, LibraryKind.DRIVER_ROOT, id="a driver container"),
    ],
)
def test_found_where_it_is(path: str, machine: str, kind: LibraryKind, tmp_path: Path) -> None:
    file = install(tmp_path, path, machine)

    found = find_library(root=tmp_path, machine=machine)

    assert (found.path, found.kind) == (file, kind)
    assert str(found.tried[-1]) == f"{file} (used)"
    assert {tried.reason for tried in found.tried[:-1]} == {"not there"}


def test_the_linker_is_asked_first(tmp_path: Path) -> None:
    install(tmp_path, STANDARD_X86)
    file = install(tmp_path, CACHED)
    write_linker_cache(tmp_path, ("libc.so.6", "/lib/libc.so.6"), (LIBRARY_NAME, CACHED))

    found = find_library(root=tmp_path, machine=X86)

    assert (found.path, found.kind, len(found.tried)) == (file, LibraryKind.LINKER, 1)


def test_the_cache_of_older_systems_is_read_too(tmp_path: Path) -> None:
    file = install(tmp_path, CACHED)
    write_linker_cache(tmp_path, (LIBRARY_NAME, CACHED), before=b"ld.so-1.7.0\0" + bytes(36))

    assert find_library(root=tmp_path, machine=X86).path == file


@pytest.mark.parametrize(
    "cache",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"something else", id="another format"),
        pytest.param(b"glibc-ld.so.cache1.1" + struct.pack("<I", 2**31) + bytes(40), id="cut off"),
        pytest.param(
            b"glibc-ld.so.cache1.1" + struct.pack("<I", 1) + bytes(24) + b"\xff" * 24,
            id="offsets far outside",
        ),
    ],
)
def test_a_broken_cache_does_not_stop_the_search(cache: bytes, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.cache").write_bytes(cache)
    file = install(tmp_path, STANDARD_X86)

    assert find_library(root=tmp_path, machine=X86).path == file


def test_a_library_for_another_machine_is_passed_over(tmp_path: Path) -> None:
    install(tmp_path, f"/usr/lib/{LIBRARY_NAME}", "i386")
    file = install(tmp_path, STANDARD_X86)

    found = find_library(root=tmp_path, machine=X86)

    assert found.path == file
    assert f"{tmp_path}/usr/lib/{LIBRARY_NAME} (for another machine)" in map(str, found.tried)


def test_an_empty_placeholder_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64" / LIBRARY_NAME).touch()
    file = install(tmp_path, STANDARD_X86)

    assert find_library(root=tmp_path, machine=X86).path == file


def test_an_absolute_link_stays_inside_the_root(tmp_path: Path) -> None:
    file = install(tmp_path, "/opt/driver/libnvidia-ml.so.550.54", ARM)
    link = tmp_path / TEGRA.lstrip("/")
    link.parent.mkdir(parents=True)
    link.symlink_to("/opt/driver/libnvidia-ml.so.550.54")

    assert find_library(root=tmp_path, machine=ARM).path == file


def test_a_link_to_itself_ends(tmp_path: Path) -> None:
    link = tmp_path / STANDARD_X86.lstrip("/")
    link.parent.mkdir(parents=True)
    link.symlink_to(LIBRARY_NAME)

    with pytest.raises(NvmlLibraryNotFoundError):
        find_library(root=tmp_path, machine=X86)


@pytest.mark.parametrize("named", [f"/opt/mine/{LIBRARY_NAME}", "/opt/mine"], ids=["a file", "a folder"])
def test_what_is_named_is_taken(named: str, tmp_path: Path) -> None:
    install(tmp_path, STANDARD_X86)
    file = install(tmp_path, f"/opt/mine/{LIBRARY_NAME}")

    found = find_library(root=tmp_path, machine=X86, explicit=Path(named))

    assert (found.path, found.kind) == (file, LibraryKind.EXPLICIT)


def test_what_is_named_and_missing_is_not_replaced_by_another(tmp_path: Path) -> None:
    install(tmp_path, STANDARD_X86)

    with pytest.raises(NvmlLibraryNotFoundError) as caught:
        find_library(root=tmp_path, machine=X86, explicit=Path("/opt/mine.so"))

    assert [str(tried) for tried in caught.value.tried] == [f"{tmp_path}/opt/mine.so (not there)"]


def test_further_driver_roots_are_searched(tmp_path: Path) -> None:
    file = install(tmp_path, f"/opt/driver/usr/lib64/{LIBRARY_NAME}")

    found = find_library(root=tmp_path, machine=X86, driver_roots=(PurePosixPath("/opt/driver"),))

    assert (found.path, found.kind) == (file, LibraryKind.DRIVER_ROOT)


def test_a_jetson_without_the_library_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NvmlLibraryNotFoundError) as caught:
        find_library(root=tmp_path, machine="arm64")

    message = str(caught.value)
    assert f"{LIBRARY_NAME} for aarch64 was not found" in message
    assert all(f"{tmp_path}{path} (not there)" in message for path in (STANDARD_ARM, TEGRA, OLD_TEGRA))
    assert "mount that folder read-only at the same path" in message
    assert caught.value.retry_after_s == 30.0


def test_tegra_folders_are_no_business_of_an_x86_machine(tmp_path: Path) -> None:
    with pytest.raises(NvmlLibraryNotFoundError) as caught:
        find_library(root=tmp_path, machine=X86)

    assert not any("aarch64" in str(tried) for tried in caught.value.tried)
    assert "Jetson" not in str(caught.value)
