"""What the program in a reservation pod logs: few lines, in the same words always, for grep to find."""

import datetime as dt
import sys
from collections.abc import Callable
from typing import TextIO

import msgspec

__all__ = ["Say", "speaker"]

Say = Callable[..., None]
"""Called with a message, and keys that belong to it."""


def speaker(*, as_json: bool, stream: TextIO | None = None) -> Say:
    """Return what writes a line at once: a quoted message and its keys, or a JSON object."""
    target = sys.stderr if stream is None else stream

    def say(message: str, **keys: str) -> None:
        at = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        print(_line(at, message, keys, as_json=as_json), file=target, flush=True)

    return say


def _line(at: str, message: str, keys: dict[str, str], *, as_json: bool) -> str:
    if as_json:
        return msgspec.json.encode({"event": message, **keys, "level": "info", "timestamp": at}).decode()
    words = [
        at,
        f'"{message}"',
        *(f"{key}={msgspec.json.encode(value).decode()}" for key, value in keys.items()),
    ]
    return " ".join(words)
