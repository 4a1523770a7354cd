"""Tables, JSON and YAML."""

import json
from collections.abc import Callable

import pytest
import yaml

from vramline.cli.output import OutputFormat, get_console, print_data, print_table
from vramline.model.node import Taint

DATA = {"pods": [Taint("key", "wért", "NoSchedule")], "free_mib": -600, "node": None}
PLAIN = {"pods": [{"key": "key", "value": "wért", "effect": "NoSchedule"}], "free_mib": -600, "node": None}


def never() -> None:
    raise AssertionError("nobody asked for a table")


@pytest.mark.parametrize(
    ("output", "parse"),
    [
        pytest.param(OutputFormat.JSON, json.loads, id="json"),
        pytest.param(OutputFormat.YAML, yaml.safe_load, id="yaml"),
    ],
)
def test_data_reads_back_as_it_was(
    output: OutputFormat, parse: Callable[[str], object], capsys: pytest.CaptureFixture[str]
) -> None:
    print_data(DATA, output, table=never)

    printed = capsys.readouterr().out
    assert parse(printed) == PLAIN
    assert "wért" in printed


def test_a_table_is_printed_only_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    print_data(DATA, OutputFormat.TABLE, table=lambda: print_table(["pod"], [["a"]]))

    assert capsys.readouterr().out == "POD\na\n"


def test_numbers_are_aligned_right_and_lines_end_without_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["gpu", "free"], [["GPU-1", "500"], ["GPU-22", "24,000"]], numbers=["free"])

    assert capsys.readouterr().out == "GPU       FREE\nGPU-1      500\nGPU-22  24,000\n"


def test_a_piped_table_is_never_folded(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "text"], [["n", "word " * 200 + "end"]])

    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        pytest.param("[red]pod[/red]", "[red]pod[/red]", id="markup is text"),
        pytest.param("a\x1b[2Jb", "a\ufffd[2Jb", id="an escape sequence is disarmed"),
        pytest.param(":smile:", ":smile:", id="no pictures"),
    ],
)
def test_a_cell_is_printed_as_it_is(cell: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name"], [[cell]])

    assert capsys.readouterr().out == f"NAME\n{shown}\n"


@pytest.mark.parametrize(
    ("no_color", "coloured"),
    [pytest.param("", True, id="a terminal has styles"), pytest.param("1", False, id="not with NO_COLOR")],
)
def test_styles_follow_no_color(no_color: str, coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", no_color)
    console = get_console()

    with console.capture() as captured:
        console.print("text", style="bold red")

    assert ("\x1b[" in captured.get()) is coloured
