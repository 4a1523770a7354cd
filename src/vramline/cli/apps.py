"""What every command module starts with."""

import typer

__all__ = ["new_app"]


def new_app() -> typer.Typer:
    """Return an app that leaves errors to `main` and prints its help as plain text."""
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
