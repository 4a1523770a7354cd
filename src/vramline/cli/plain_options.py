"""Options that are what they look like: text, a file that is there, a number by default.

typer checks every value with a library that takes longer to load than most commands need altogether. Values
about which there is nothing to find out are taken as they are; all others go its way.
"""

import os
from pathlib import Path
from typing import Any

__all__ = ["take_plain_options"]


def take_plain_options(command: Any) -> None:  # noqa: ANN401 — typer hides the type
    """Let a command, and those below it, check only what has to be checked."""
    for each in getattr(command, "commands", {}).values():
        take_plain_options(each)
    listed = command.get_params

    def get_params(ctx: Any) -> Any:  # noqa: ANN401
        params = listed(ctx)
        for param in params:
            if getattr(param, "_runtime_param", param) is None:  # not made yet
                param._runtime_param = _Plain()  # noqa: SLF001
        return params

    command.get_params = get_params


class _Plain:
    """Stands where typer keeps what checks a parameter, until a value has to be checked."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401 — whatever typer has there
        told = param.type_descriptor
        if param.multiple or param.nargs != 1 or told.parameter_info.parser is not None:
            return self._check(value, param, ctx)
        kind = told.annotation
        if value is None or (kind in (str, int, float) and type(value) is kind):
            return value
        if kind is Path and isinstance(value, str) and _is_plain_file(value, told.parameter_info):
            return Path(value)
        return self._check(value, param, ctx)

    def _check(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401
        param._runtime_param = None  # noqa: SLF001 — typer makes its own now
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _is_plain_file(value: str, wanted: Any) -> bool:  # noqa: ANN401
    """Whether a file can be read, and nothing else is wanted of it."""
    is_simple = wanted.file_okay and not (wanted.writable or wanted.resolve_path or wanted.path_type)
    return is_simple and os.path.isfile(value) and os.access(value, os.R_OK)  # noqa: PTH113 — any text
