"""Amounts: MiB as integers, Kubernetes quantities as exact fractions. No floats, ever.

A parser here raises `ValueError` with what was wrong; the room that knows the object and the field
(`wire`) turns it into a `RequestError`.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import NewType

__all__ = ["MAX_MIB", "Mib", "format_mib", "parse_quantity", "parse_vram", "quantity_to_mib"]

Mib = NewType("Mib", int)
"""An amount of memory in MiB (1,048,576 bytes)."""

MAX_MIB = Mib(2**31 - 1)
"""Largest amount that is believed (2 PiB). Larger values are wrapped integers or typing errors."""

_VRAM = re.compile(r"(?P<number>[0-9]{1,19})(?P<suffix>|Mi|Gi)", re.ASCII)
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3}|)",
    re.ASCII,
)
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_QUANTITY_LENGTH_LIMIT = 64


def parse_vram(text: str) -> Mib:
    """Read an amount of VRAM as people write it: `8000` and `8000Mi` are MiB, `8Gi` is 8,192 MiB.

    >>> parse_vram("8000"), parse_vram("8000Mi"), parse_vram("8Gi")
    (8000, 8000, 8192)
    """
    found = _VRAM.fullmatch(text)
    if found is None:
        raise ValueError("is not an amount of memory")
    return _checked(int(found["number"]) * (1024 if found["suffix"] == "Gi" else 1))


@lru_cache(maxsize=4096)  # a cluster says the same few amounts again and again
def parse_quantity(text: str) -> Fraction:
    """Read a Kubernetes quantity exactly, in its own base unit.

    >>> parse_quantity("1500m"), parse_quantity("2Gi") == 2**31, parse_quantity("1e3")
    (Fraction(3, 2), True, Fraction(1000, 1))
    """
    found = _QUANTITY.fullmatch(text) if len(text) <= _QUANTITY_LENGTH_LIMIT else None
    if found is None:
        raise ValueError("is not a Kubernetes quantity")
    number, suffix = Fraction(found["number"]), found["suffix"]
    if suffix in _BINARY:
        return number * _BINARY[suffix]
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    return number * Fraction(10) ** exponent


def quantity_to_mib(text: str) -> Mib:
    """Read a Kubernetes quantity of bytes as MiB, rounded up: a promise must cover the ask.

    >>> quantity_to_mib("8Gi"), quantity_to_mib("1")
    (8192, 1)
    """
    return _checked(-(-parse_quantity(text) // 2**20))


def format_mib(amount: int) -> str:
    """Write an amount for people.

    >>> format_mib(24000), format_mib(-600)
    ('24,000 MiB', '-600 MiB')
    """
    return f"{amount:,} MiB"


def _checked(amount: int) -> Mib:
    if amount <= 0:
        raise ValueError("must be more than 0")
    if amount > MAX_MIB:
        raise ValueError(f"is more than {MAX_MIB:,} MiB")
    return Mib(amount)
