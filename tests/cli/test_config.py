"""`vramline config show`, and the settings file."""

import json
import os
import re
from pathlib import Path

import pytest

from vramline.cli.main import main


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in list(os.environ):
        if variable.startswith(("VRAMLINE_", "HAMI_")):
            monkeypatch.delenv(variable)


@pytest.fixture
def write(tmp_path: Path) -> "Writer":
    return Writer(tmp_path / "vramline.yaml")


class Writer:
    """Writes the settings file and returns its path."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, content: str | bytes) -> str:
        self.path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(self.path)


def test_every_value_is_shown_with_its_origin(
    write: Writer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VRAMLINE_MARGIN", "1Gi")
    path = write("margin: 200\nreleaseGrace: 2m\n")

    assert main(["config", "show", "--config", path, "--realtime", "warning", "-o", "json"]) == 0

    rows = {row["setting"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["margin"] == {
        "setting": "margin",
        "value": 1024,
        "origin": "environment: VRAMLINE_MARGIN = 1Gi",
        "overrides": ["margin = 200"],
    }
    assert (rows["releaseGrace"]["value"], rows["releaseGrace"]["origin"]) == (
        120.0,
        "file: releaseGrace = 2m",
    )
    assert (rows["realtimeMode"]["value"], rows["realtimeMode"]["origin"]) == (
        "warning",
        "flag: --realtime = warning",
    )
    assert (rows["listen"]["value"], rows["listen"]["origin"]) == ("127.0.0.1:8780", "default")


def test_the_table_is_for_people(write: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--config", write("enableRealtimeCheck: false\n"), "--v=4"]) == 0

    lines = [re.split(r" {2,}", line) for line in capsys.readouterr().out.splitlines()]
    assert ["realtimeMode", "disabled", "file: enableRealtimeCheck = false"] in lines
    assert ["margin", "100 MiB", "default"] in lines
    assert ["verbosity", "4", "flag: --v = 4"] in lines
    assert ["nodePoolLabelKey", '""', "default"] in lines


def test_the_group_alone_says_where_its_help_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config"]) == 2

    assert capsys.readouterr().err == "error: Missing command; see `vramline config --help`\n"


def test_all_mistakes_of_all_sources_are_lines_on_standard_error(
    write: Writer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VRAMLINE_LISTEN", "8780")
    path = write("margn: 1\npolicy: best\n")

    assert main(["config", "show", "--config", path, "--v", "99"]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert [line.partition(": ")[2].removeprefix(f"{path}: ").split(":")[0] for line in err.splitlines()] == [
        "margn",
        "policy = 'best'",
        "environment",
        "command line",
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(
            "margin: 1\nmargin: 2\n",
            "is not YAML: line 2, column 1: the key 'margin' is there twice",
            id="a key twice",
        ),
        pytest.param("margin: [1", "is not YAML: line 1, column", id="a bracket left open"),
        pytest.param(
            "a: b: c", "is not YAML: line 1, column 5: mapping values are not allowed here", id="two colons"
        ),
        pytest.param(b"\x00\xff\xfe\x01", "is not YAML: ", id="a binary file"),
        pytest.param("margin: 1\n---\nmargin: 2\n", "is not YAML: ", id="two documents"),
        pytest.param("!!python/object/apply:os.system [ls]", "is not YAML: ", id="a tag that would run code"),
        pytest.param("[" * 5_000, "is not YAML: ", id="nested too deeply"),
        pytest.param("margin: " + "9" * 5_000, "is not YAML: ", id="a number of 5000 digits"),
        pytest.param("listen: 2001-99-99", "is not YAML: ", id="a date that does not exist"),
        pytest.param("# " + "x" * 2**20, "is larger than 1 MiB", id="too large"),
        pytest.param("? [a, b]\n: c\n", "is not YAML: ", id="a key that is a list"),
    ],
)
def test_a_bad_file_is_one_line(
    content: str | bytes, problem: str, write: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(content)

    assert main(["config", "show", "--config", path]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {path}: {problem}")
    assert err.count("\n") == 1


def test_a_value_that_is_endless_when_written_out_is_one_short_line(
    write: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    layers = [f"  - &x{depth} [{', '.join([f'*x{depth - 1}'] * 10)}]" for depth in range(1, 12)]
    path = write("\n".join(["margin:", "  - &x0 [1, 2]", *layers, ""]))

    assert main(["config", "show", "--config", path]) == 2

    assert len(capsys.readouterr().err) < 500


@pytest.mark.parametrize("name", ["missing.yaml", "."], ids=["no such file", "a folder"])
def test_a_file_that_cannot_be_read_is_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "show", "--config", str(tmp_path / name)]) == 2

    assert ": cannot be read: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", ["", "# nothing\n", "---\n", "{}"], ids=["empty", "comment", "start", "braces"]
)
def test_an_empty_file_says_nothing(content: str, write: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--config", write(content)]) == 0

    assert "file:" not in capsys.readouterr().out
