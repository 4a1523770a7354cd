"""The five stories, played once: every line says what happened, the last one whether all came out right."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vramline.errors import TransientError
from vramline.probes.library import LIBRARY_NAME, LibraryKind, find_library
from vramline.simulate.story import list_stories, play_story

__all__ = ["Played", "find_library_on_jetson", "play_stories"]

_JETSON = "Jetson"
"""The word in the title of the story that needs a look for NVML as well."""
_TEGRA_FOLDER = Path("usr/lib/aarch64-linux-gnu/nvidia")
_ELF_FOR_ARM = b"\x7fELF" + b"\x02\x01\x01" + bytes(9) + b"\x03\x00" + b"\xb7\x00"
"""As much of a 64-bit ARM library as is needed to tell it from one for another machine."""


class Played(msgspec.Struct, frozen=True):
    """One story as it came out."""

    title: str
    lines: list[str]
    passed: bool


def play_stories() -> Iterator[Played]:
    """Play every story that comes with the package, in order."""
    for number, story in enumerate(list_stories(), start=1):
        result = play_story(story)
        title, *lines = result.transcript()
        passed = result.passed
        if _JETSON in story.title:
            found, told = find_library_on_jetson()
            first_step = next(i for i, line in enumerate(lines) if line.startswith("—"))
            lines[first_step:first_step] = told
            passed = passed and found
        yield Played(f"Story {number}: {title}", lines, passed)


def find_library_on_jetson() -> tuple[bool, list[str]]:
    """Look for NVML in a file system laid out like a Jetson's: in the Tegra folder, unknown to the linker."""
    with tempfile.TemporaryDirectory(prefix="vramline-jetson-") as folder:
        root = Path(folder)
        place = root / _TEGRA_FOLDER
        place.mkdir(parents=True)
        (place / LIBRARY_NAME).write_bytes(_ELF_FOR_ARM)
        title = f"— NVML is only in /{_TEGRA_FOLDER}, where the linker does not look"
        try:
            found = find_library(root=root, machine="aarch64")
        except TransientError as failure:
            return False, [title, f"  ✗ {failure}"]
        tried = [
            f"  {'found' if not each.reason else each.reason:<10} /{each.path.relative_to(root)}"
            for each in found.tried
        ]
        right = found.kind is LibraryKind.TEGRA and found.path == place / LIBRARY_NAME
        verdict = "✓ discovered through the Tegra folder, without LD_LIBRARY_PATH"
        return right, [title, *tried, f"  {verdict if right else f'✗ found as {found.kind}'}"]
