"""Printing shared by all commands: `-o table|json|yaml` and tables.

Data goes to standard output, everything else to standard error. Colours only on a terminal, and never
where `NO_COLOR` is set. Heavy libraries are imported when something is printed with them.
"""

import enum
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from vramline.cli.text import printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["OutputFormat", "OutputOption", "get_console", "print_data", "print_table"]

_PIPED_WIDTH = 10_000
"""Columns of output that is no terminal: wide enough that no line is ever folded."""


class OutputFormat(enum.StrEnum):
    """How data is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="How to print.", show_default=True, case_sensitive=True)
]
"""Type of the `-o` option: `output: OutputOption = OutputFormat.TABLE`."""


def print_data(data: object, output: OutputFormat, *, table: Callable[[], None]) -> None:
    """Print `data` as JSON or YAML, or call `table` to print it for people.

    `data` is anything that msgspec can encode: structs, dictionaries, lists.
    """
    match output:
        case OutputFormat.JSON:
            typer.echo(msgspec.json.format(msgspec.json.encode(data), indent=2))
        case OutputFormat.YAML:
            typer.echo(_as_yaml(data), nl=False)
        case OutputFormat.TABLE:
            table()


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[str] = ()
) -> None:
    """Print rows under upper-case headings; columns named in `numbers` are aligned right."""
    from rich.table import Table  # noqa: PLC0415 — rich costs 60 ms that JSON output need not pay

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        number = column in numbers
        grid.add_column(
            column.upper(), justify="right" if number else "left", overflow="fold", no_wrap=number
        )
    for row in rows:
        grid.add_row(*(printable(cell) for cell in row))
    console = get_console()
    with console.capture() as captured:
        console.print(grid)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()), color=True)


def get_console(*, stderr: bool = False) -> "Console":
    """Return a console that prints text as it is: no markup, no guessing of colours, no folding in a pipe."""
    from rich.console import Console  # noqa: PLC0415 — as above

    plain = bool(os.environ.get("NO_COLOR"))
    console = Console(
        stderr=stderr, markup=False, highlight=False, emoji=False, color_system=None if plain else "auto"
    )
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    return console


def _as_yaml(data: object) -> str:
    import yaml  # noqa: PLC0415 — only this output needs it

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(msgspec.to_builtins(data), Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text
