"""What every command module starts with."""

import typer

__all__ = ["examples", "new_app"]


def new_app() -> typer.Typer:
    """Return an app that leaves errors to `main` and prints its help as plain text."""
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def examples(*lines: str) -> str:
    """Return the epilog of a command's help: one example a line, kept as written."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
