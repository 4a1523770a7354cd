"""The settings file, the environment and flags, read for `vramline.settings`, which itself reads nothing."""

import difflib
import os
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from vramline.errors import RequestError
from vramline.settings import SETTINGS, Settings, load

__all__ = ["EVERY_SETTING", "ConfigOption", "load_settings", "read_setting_flags", "read_settings_file"]

_SIZE_LIMIT = 2**20
"""Bytes of a settings file that are believed; more is some other file."""

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Settings file (YAML); see docs/settings.md.", show_default=False
    ),
]
"""Type of the `--config` option: `config: ConfigOption = None`."""


EVERY_SETTING = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Context of a command that takes every setting as a flag, besides those that its help names."""


def read_setting_flags(arguments: Iterable[str]) -> dict[str, object]:
    """Read `--release-grace 30s` or `--release-grace=30s` by the setting's name."""
    by_option = {setting.option: setting.name for setting in SETTINGS}
    rest, flags = iter(arguments), dict[str, object]()
    for argument in rest:
        option, equals, value = argument.partition("=")
        if option not in by_option:
            close = difflib.get_close_matches(option, by_option, 1) or ["one of docs/settings.md"]
            raise RequestError(subject=option, problem="is no option", accepted=close[0])
        text = value if equals else next(rest, None)
        if text is None:
            raise RequestError(subject=option, problem="has no value")
        flags[by_option[option]] = text
    return flags


def load_settings(path: Path | None, flags: Mapping[str, object]) -> Settings:
    """Return the settings in force for this process: file, environment, then `flags` by setting name.

    A flag that was not given is None. All mistakes are raised at once, as `MistakesError`.
    """
    if path is None:
        return load(None, os.environ, flags)
    return load(read_settings_file(path), os.environ, flags, file_name=str(path))


def read_settings_file(path: Path) -> object:
    """Return the parsed content of a settings file; None where it is empty."""
    try:
        with path.open("rb") as file:
            content = file.read(_SIZE_LIMIT + 1)
    except OSError as failure:
        raise RequestError(
            subject=str(path), problem=f"cannot be read: {failure.strerror}", accepted="a YAML file"
        ) from None
    if len(content) > _SIZE_LIMIT:
        raise RequestError(subject=str(path), problem="is larger than 1 MiB", accepted="a settings file")
    try:
        return yaml.load(content, _StrictLoader)  # noqa: S506 — derives from SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as wrong:
        raise RequestError(
            subject=str(path), problem=f"is not YAML: {_reason(wrong)}", accepted="lines of `setting: value`"
        ) from None


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that is given twice; YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 — yaml's signature
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _reason(wrong: Exception) -> str:
    """Say in one line what a YAML parser says in five."""
    if isinstance(wrong, RecursionError):
        return "it is nested too deeply"
    if not isinstance(wrong, yaml.MarkedYAMLError):
        return str(wrong).partition("\n")[0]
    mark = wrong.problem_mark or wrong.context_mark
    place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    return f"{place}{wrong.problem or wrong.context}"
