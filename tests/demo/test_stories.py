from pathlib import Path

import pytest

from vramline.demo import stories
from vramline.demo.stories import find_library_on_jetson, play_stories


def test_all_five_stories_come_out_right() -> None:
    played = list(play_stories())

    assert [each.passed for each in played] == [True] * 5
    assert all("✗" not in line for each in played for line in each.lines)


def test_the_jetson_story_looks_for_nvml_too() -> None:
    told = next(each for each in play_stories() if "Jetson" in each.title)

    assert any("discovered through the Tegra folder" in line for line in told.lines)


def test_a_library_in_the_linkers_path_is_not_what_the_story_is_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stories, "_TEGRA_FOLDER", Path("usr/lib"))

    passed, lines = find_library_on_jetson()

    assert not passed
    assert "✗ found as linker" in lines[-1]
