"""Values that are taken as they are are those that would be taken anyway."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.main import get_command

from vramline.cli.plain_options import take_plain_options


def command(taken: list[dict[str, Any]]) -> Any:
    app = typer.Typer(add_completion=False)

    @app.command()
    def run(
        *,
        text: str = "some",
        note: Annotated[str | None, typer.Option()] = None,
        number: Annotated[int, typer.Option(min=2)] = 15,
        share: float = 0.5,
        file: Path | None = None,
        there: Annotated[Path | None, typer.Option(exists=True)] = None,
        names: Annotated[list[str] | None, typer.Option()] = None,
        whole: Annotated[Path | None, typer.Option(resolve_path=True)] = None,
        flag: bool = False,
    ) -> None:
        told = {"text": text, "note": note, "number": number, "share": share, "file": file, "there": there}
        taken.append({**told, "names": names, "whole": whole, "flag": flag})

    return get_command(app)


def call(arguments: list[str], *, plain: bool) -> object:
    taken: list[dict[str, Any]] = []
    made = command(taken)
    if plain:
        take_plain_options(made)
    try:
        with made.make_context("run", list(arguments)) as context:
            made.invoke(context)
    except typer.TyperException as problem:
        return problem.format_message()
    return taken


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--text", "other", "--note", "7"],
        ["--text", ""],
        ["--number", "3"],
        ["--number", "1"],
        ["--number", "much"],
        ["--share", "0.25"],
        ["--share", "half"],
        ["--file", __file__],
        ["--file", "/no/such/file"],
        ["--file", "/tmp"],  # noqa: S108 — a folder that is always there
        ["--there", __file__],
        ["--there", "/no/such/file"],
        ["--names", "a", "--names", "b"],
        ["--whole", __file__],
        ["--flag"],
    ],
    ids=" ".join,
)
def test_every_value_is_what_typer_makes_of_it(arguments: list[str]) -> None:
    assert call(arguments, plain=True) == call(arguments, plain=False)


def test_a_command_with_plain_options_does_not_load_what_checks_the_others() -> None:
    script = (
        "import sys; from vramline.cli.main import main;"
        "assert main(['scheduler', '--kubeconfig', sys.argv[1]]) == 2;"  # it is no kubeconfig
        "assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, __file__], check=True, capture_output=True)
