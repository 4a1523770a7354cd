"""Every story that comes with the package, and every scenario file next to this one."""

from pathlib import Path

import pytest

from vramline.simulate.story import Story, list_stories, play_story, read_story

_FILES = sorted(Path(__file__).parent.glob("*.yaml"))


@pytest.mark.parametrize("story", list_stories(), ids=lambda story: story.title)
def test_a_story_of_the_package_comes_out_right(story: Story) -> None:
    result = play_story(story)

    assert result.passed, "\n".join(result.transcript())


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_a_scenario_comes_out_right(file: Path) -> None:
    result = play_story(read_story(file.read_text(encoding="utf-8"), file.name))

    assert result.passed, "\n".join(result.transcript())


def test_there_are_five_stories() -> None:
    assert len(list_stories()) == 5
