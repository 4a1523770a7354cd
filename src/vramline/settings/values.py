"""From what a person wrote to a value. A parser raises `ValueError` with what is wrong with it."""

import enum
import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from vramline.units import Mib, parse_vram
from vramline.wire.device_names import is_device_naming

__all__ = [
    "MAX_DURATION_S",
    "Address",
    "as_address",
    "as_device_names",
    "as_history_age",
    "as_history_size",
    "as_image",
    "as_label_key",
    "as_label_value",
    "as_margin",
    "as_namespace",
    "as_optional_address",
    "as_path",
    "as_scheduler_name",
    "as_slots",
    "as_switch",
    "as_verbosity",
    "duration",
    "duration_between",
    "on_or_off",
    "one_of",
]

Word = TypeVar("Word", bound=enum.StrEnum)

MAX_DURATION_S = 86_400.0
"""One day. A longer age or grace period is a typing error: it would trust a card that nobody has seen."""

_DURATION = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,6})?)(?P<unit>ms|s|m|h|)", re.ASCII)
_SECONDS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_NOTHING = re.compile(r"0+(?:Mi|Gi)?", re.ASCII)
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):(?P<port>[0-9]{1,5})", re.ASCII)
_IMAGE = re.compile(r"[a-z0-9][a-zA-Z0-9._/@:-]{0,511}", re.ASCII)
_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
_LABEL_PREFIX = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)


class Address(msgspec.Struct, frozen=True):
    """Where to listen. An IPv6 host is kept without its brackets."""

    host: str
    port: int
    """0: any free port."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def as_switch(raw: object) -> bool:
    """Read true or false, in any case; 1 and 0 too."""
    word = _text(raw).lower()
    if word not in {"true", "false", "1", "0"}:
        raise ValueError("is neither true nor false")
    return word in {"true", "1"}


def one_of(words: type[Word]) -> Callable[[object], Word]:
    """Return a parser for the words of an enumeration."""

    def parse(raw: object) -> Word:
        try:
            return words(_text(raw))
        except ValueError:
            raise ValueError("is none of the accepted words") from None

    return parse


def on_or_off(words: type[Word]) -> Callable[[object], Word]:
    """Return a parser for an enumeration of `on` and `off`, which YAML takes for true and false."""
    parse = one_of(words)
    return lambda raw: parse({True: "on", False: "off"}[raw] if isinstance(raw, bool) else raw)


def as_margin(raw: object) -> Mib:
    """Read an amount of VRAM that may be nothing.

    >>> as_margin(100), as_margin("1Gi"), as_margin("0")
    (100, 1024, 0)
    """
    text = _text(raw)
    return Mib(0) if _NOTHING.fullmatch(text) else parse_vram(text)


def duration(*, may_be_zero: bool) -> Callable[[object], float]:
    """Return a parser for seconds: `90s`, `2m`, `1h`, `500ms`, or a plain number of seconds."""

    def parse(raw: object) -> float:
        found = _DURATION.fullmatch(_text(raw))
        if found is None:
            raise ValueError("is not a duration")
        seconds = float(found["number"]) * _SECONDS[found["unit"]]
        if seconds > MAX_DURATION_S:
            raise ValueError("is more than a day")
        if seconds == 0 and not may_be_zero:
            raise ValueError("must be more than 0: no observation is younger than that")
        return seconds

    return parse


def duration_between(low_s: float, high_s: float) -> Callable[[object], float]:
    """Return a parser for seconds with narrower bounds."""

    def parse(raw: object) -> float:
        seconds = duration(may_be_zero=True)(raw)
        if not low_s <= seconds <= high_s:
            raise ValueError(f"must be from {low_s:g} s to {high_s:g} s")
        return seconds

    return parse


def as_history_age(raw: object) -> float:
    """Read how long history is kept: days too, because that is what people ask about.

    >>> as_history_age("7d"), as_history_age("36h")
    (604800.0, 129600.0)
    """
    text = _text(raw)
    found = _DURATION.fullmatch(text.removesuffix("d") if text.endswith("d") else text)
    if found is None or (text.endswith("d") and found["unit"]):
        raise ValueError("is not a duration")
    seconds = float(found["number"]) * (86_400.0 if text.endswith("d") else _SECONDS[found["unit"]])
    if not 60.0 <= seconds <= 366 * 86_400.0:
        raise ValueError("must be from a minute to a year")
    return seconds


def as_history_size(raw: object) -> Mib:
    """Read how much history is kept.

    >>> as_history_size("256Mi"), as_history_size("2Gi")
    (256, 2048)
    """
    size = parse_vram(_text(raw))
    if not 1 <= size <= 64 * 1024:
        raise ValueError("must be from 1 MiB to 64 GiB")
    return size


def as_path(raw: object) -> str:
    """Read an absolute path; empty is none."""
    text = _quoted(raw)
    if text and (not text.startswith("/") or not text.isprintable()):
        raise ValueError("is not an absolute path")
    return text


def as_verbosity(raw: object) -> int:
    """Read how much to say, from 0 to 10."""
    text = _text(raw)
    if not (text.isascii() and text.isdecimal()) or len(text) > 2 or int(text) > 10:
        raise ValueError("is no verbosity")
    return int(text)


def as_slots(raw: object) -> int:
    """Read how many pods may share a card as far as kubelet is concerned."""
    text = _text(raw)
    if not (text.isascii() and text.isdecimal()) or len(text) > 4 or not 1 <= int(text) <= 1000:
        raise ValueError("is no number of slots")
    return int(text)


def as_address(raw: object) -> Address:
    """Read host:port.

    >>> as_address("127.0.0.1:8780"), str(as_address("[::1]:0"))
    (Address(host='127.0.0.1', port=8780), '[::1]:0')
    """
    found = _ADDRESS.fullmatch(_text(raw))
    if found is None or int(found["port"]) > 65_535:
        raise ValueError("is not host:port")
    return Address(found["host"].strip("[]"), int(found["port"]))


def as_optional_address(raw: object) -> Address | None:
    """Read host:port; empty is nowhere."""
    return None if raw == "" else as_address(raw)


def as_scheduler_name(raw: object) -> str:
    """Read the name of a scheduler; the cluster's own would bind the same pods a second time."""
    text = _quoted(raw)
    if not _LABEL_PREFIX.fullmatch(text):
        raise ValueError("is not a name of lower-case letters, digits, '-' and '.'")
    if text == "default-scheduler":
        raise ValueError("is the cluster's own scheduler, which does not ask Vramline")
    return text


def as_namespace(raw: object) -> str:
    """Read the name of a namespace."""
    text = _quoted(raw)
    if not _LABEL_PREFIX.fullmatch(text) or "." in text or len(text) > 63:
        raise ValueError("is not the name of a namespace")
    return text


def as_image(raw: object) -> str:
    """Read an image reference; empty is none."""
    text = _quoted(raw)
    if text and not _IMAGE.fullmatch(text):
        raise ValueError("is not an image reference")
    return text


def as_device_names(raw: object) -> str:
    """Read how containers are told their cards."""
    if not isinstance(raw, str) or not is_device_naming(raw):
        raise ValueError("is neither uuid nor vendor/class")
    return raw


def as_label_key(raw: object) -> str:
    """Read a Kubernetes label key; empty is none."""
    text = _quoted(raw)
    prefix, slash, name = text.rpartition("/")
    if text and (not _LABEL_NAME.fullmatch(name) or (slash and not _LABEL_PREFIX.fullmatch(prefix))):
        raise ValueError("is not a Kubernetes label key")
    return text


def as_label_value(raw: object) -> str:
    """Read a Kubernetes label value; empty is none."""
    text = _quoted(raw)
    if text and not _LABEL_NAME.fullmatch(text):
        raise ValueError("is not a Kubernetes label value")
    return text


def _text(raw: object) -> str:
    """Bring what a file, a variable or a flag holds into one spelling."""
    match raw:
        case str():
            return raw.strip()
        case bool():
            return "true" if raw else "false"
        case int() | float():
            return str(raw)
        case None:
            raise ValueError("has no value")
        case _:
            raise ValueError("is not a single value")


def _quoted(raw: object) -> str:
    """Read a text that YAML must not have taken for something else: `yes` is not `true`, `1.10` not `1.1`."""
    text = _text(raw)
    if isinstance(raw, str):
        return text
    raise ValueError("is not a text; put it in quotes")
