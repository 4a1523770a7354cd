"""`vramline config`: the settings in force."""

from typing import Annotated

import msgspec
import typer

from vramline.cli.apps import examples, new_app
from vramline.cli.output import OutputFormat, OutputOption, print_data, print_table
from vramline.cli.settings_file import ConfigOption, load_settings
from vramline.settings import SETTINGS, Address, Origin, Settings

__all__ = ["app"]

app = new_app()


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as it is printed."""

    setting: str
    value: str | int | float
    origin: str
    overrides: tuple[str, ...]


@app.callback()
def config() -> None:
    """Show the settings in force and where each came from."""


@app.command(
    epilog=examples(
        "vramline config show",
        "vramline config show --config vramline.yaml",
        "VRAMLINE_MARGIN=1Gi vramline config show --realtime warning -o json",
    )
)
def show(
    *,
    config: ConfigOption = None,
    realtime: Annotated[
        str | None, typer.Option(metavar="MODE", help="strict, warning or disabled.", show_default=False)
    ] = None,
    enable_realtime_check: Annotated[
        str | None, typer.Option(metavar="BOOL", help="true or false.", show_default=False)
    ] = None,
    policy: Annotated[str | None, typer.Option(help="How nodes are ranked.", show_default=False)] = None,
    v: Annotated[
        str | None, typer.Option(metavar="N", help="Verbosity, 0 to 10.", show_default=False)
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print every effective value and where it came from: flag, environment, file or default.

    Mistakes in any of them are reported all at once, and nothing is printed.
    """
    flags = {
        "realtimeMode": realtime,
        "enableRealtimeCheck": enable_realtime_check,
        "policy": policy,
        "verbosity": v,
    }
    rows = _rows(load_settings(config, flags))
    print_data(
        rows,
        output,
        table=lambda: print_table(
            ("setting", "value", "from"), [(row.setting, _shown(row), _story(row)) for row in rows]
        ),
    )


def _rows(settings: Settings) -> list[_Row]:
    """Return one row a setting; a switch that only changes another setting has no value of its own."""
    rows: dict[str, _Row] = {}
    for setting in SETTINGS:
        value = getattr(settings, setting.field)
        origin = settings.origin(setting.name)
        rows.setdefault(
            setting.field,
            _Row(
                setting=setting.name,
                value=str(value) if isinstance(value, Address) else "" if value is None else value,
                origin=_place(origin),
                overrides=origin.overrides,
            ),
        )
    return list(rows.values())


def _place(origin: Origin) -> str:
    return f"{origin.source}: {origin.where}" if origin.where else origin.source


def _shown(row: _Row) -> str:
    """Write a value with its unit; nothing at all is written as such."""
    if row.setting == "margin":
        return f"{row.value} MiB"
    if isinstance(row.value, float):
        return f"{row.value:g} s"
    return str(row.value) or '""'


def _story(row: _Row) -> str:
    return f"{row.origin} (over {', '.join(row.overrides)})" if row.overrides else row.origin
