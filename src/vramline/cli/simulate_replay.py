"""`vramline simulate replay FILE`: the decisions of a snapshot, made again."""

import sys
import time
from pathlib import Path

import typer

from vramline.cli.output import OutputFormat, print_data
from vramline.cli.text import one_line
from vramline.errors import RequestError
from vramline.simulate.replay import Replay, replay_snapshot

__all__ = ["replay"]

_MOST_BYTES = 2**30


def replay(paths: list[str], output: OutputFormat) -> None:
    """Make the decisions of one snapshot again; exit 1 if any comes out differently."""
    if len(paths) != 1:
        raise RequestError(
            subject="simulate replay",
            problem=f"takes one file, not {len(paths)}",
            accepted="FILE, a snapshot, or - for standard input; a folder of this name is ./replay",
        )
    result = replay_snapshot(_read(paths[0]), subject=paths[0])
    print_data(result, output, table=lambda: _print_lines(result))
    if result.differing:
        raise typer.Exit(1)


def _read(path: str) -> bytes:
    text = sys.stdin.buffer.read(_MOST_BYTES + 1) if path == "-" else _read_file(Path(path))
    if len(text) > _MOST_BYTES:
        raise RequestError(subject=path, problem="is larger than 1 GiB")
    return text


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise RequestError(subject=str(path), problem=f"cannot be read: {error.strerror}") from None


def _print_lines(result: Replay) -> None:
    for each in result.decisions:
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each.at))
        verdict = "same" if each.same else f"DIFFERS in {each.difference()}"
        said = f"{each.then.outcome}, {each.then.explanation.message}"
        typer.echo(one_line(f"{clock}  {verdict:<5} {each.pod}: {said}"))
    count = len(result.decisions)
    if result.differing:
        typer.echo(f"{result.differing} of {count} decisions came out differently")
    else:
        typer.echo(f"{count} decisions, made again: all the same")
