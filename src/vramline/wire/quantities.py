"""Amounts in resource lists: exact, bounded, and with the field's name when they are wrong."""

import contextlib
import re
from fractions import Fraction
from functools import lru_cache

from vramline.errors import RequestError
from vramline.units import MAX_MIB, Mib, parse_quantity, parse_vram, quantity_to_mib
from vramline.wire.decoding import shorten

__all__ = [
    "MAX_HOST_AMOUNT",
    "read_amount",
    "read_bytes_as_mib",
    "read_mib_annotation",
    "read_mib_count",
    "read_vram",
    "read_whole",
]

MAX_HOST_AMOUNT = 2**50
"""Largest amount of CPU (milli) or memory (bytes) that is believed: a PiB, and a trillion CPUs."""

_FEW_DIGITS = 12
_DIGITS = re.compile(r"[0-9]+", re.ASCII)
_BINARY = re.compile(r".*[KMGTPE]i", re.ASCII | re.DOTALL)
_MIB_FORMS = "a whole number of MiB, such as 8000"


def read_amount(value: str | float, *, subject: str, field: str, scale: int = 1) -> int:
    """Read a quantity of CPU or memory times `scale`, rounded up."""
    rounded = _round_up(value, scale) if isinstance(value, str) else None
    if rounded is not None:
        return rounded
    amount = _quantity(value, subject, field) * scale
    if not 0 <= amount <= MAX_HOST_AMOUNT:
        problem = "must not be negative" if amount < 0 else "is too large to be true"
        raise RequestError(subject=subject, field=field, value=shorten(value), problem=problem)
    return -(-amount // 1)


@lru_cache(maxsize=4096)  # a cluster says the same few amounts again and again
def _round_up(text: str, scale: int) -> int | None:
    """Return a quantity times `scale`, rounded up; None: something is wrong with it."""
    try:
        amount = parse_quantity(text) * scale
    except ValueError:
        return None
    return -(-amount // 1) if 0 <= amount <= MAX_HOST_AMOUNT else None


def read_whole(value: str | float, *, subject: str, field: str, low: int, high: int) -> int:
    """Read a count: a whole number in any form the API server may have given it."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < _FEW_DIGITS:
        number = int(value)
        if low <= number <= high:
            return number
    try:
        amount = parse_quantity(_text(value))
    except ValueError:
        amount = Fraction(1, 2)
    if amount.denominator == 1 and low <= amount <= high:
        return int(amount)
    if amount.denominator != 1:
        problem = "is not a whole number"
    else:
        problem = "is too small" if amount < low else "is too large"
    accepted = f"a whole number from {low} to {high}"
    raise RequestError(subject=subject, field=field, value=shorten(value), problem=problem, accepted=accepted)


def read_mib_count(value: str | float, *, subject: str, field: str) -> Mib | None:
    """Read a resource that counts MiB; 0 means that it is not set.

    The API server may have rewritten 8000 as `8k`. A unit for bytes is refused, with the number to write.
    """
    text = _text(value)
    if _BINARY.fullmatch(text):
        raise _refuse_unit(text, subject, field)
    amount = _quantity(value, subject, field)
    if amount.denominator != 1 or not 0 <= amount <= MAX_MIB:
        raise RequestError(
            subject=subject,
            field=field,
            value=shorten(value),
            problem=f"is not a whole number from 0 to {MAX_MIB}",
            accepted=_MIB_FORMS,
        )
    return Mib(int(amount)) or None


def read_mib_annotation(text: str, *, subject: str, field: str) -> Mib:
    """Read an annotation that counts MiB: digits, more than 0."""
    if not _DIGITS.fullmatch(text):
        raise _refuse_unit(text, subject, field)
    return read_vram(text, subject=subject, field=field, accepted=_MIB_FORMS)


def read_vram(
    text: str, *, subject: str, field: str, accepted: str = "MiB as 8000 or 8000Mi, GiB as 8Gi"
) -> Mib:
    """Read an amount of VRAM as people write it."""
    try:
        return parse_vram(text)
    except ValueError as error:
        too_long = len(text) > 19 and _DIGITS.fullmatch(text)
        problem = f"is more than {MAX_MIB:,} MiB" if too_long else str(error)
    raise RequestError(subject=subject, field=field, value=text, problem=problem, accepted=accepted)


def read_bytes_as_mib(text: str, *, subject: str, field: str) -> Mib:
    """Read a Kubernetes quantity of bytes as MiB, rounded up."""
    try:
        return quantity_to_mib(text)
    except ValueError as error:
        raise RequestError(
            subject=subject,
            field=field,
            value=text,
            problem=str(error),
            accepted="a Kubernetes quantity of bytes, such as 8Gi",
        ) from None


def _refuse_unit(text: str, subject: str, field: str) -> RequestError:
    """Build the error for an amount with a unit; where the unit is known, say the number to write."""
    problem, hint = "is not a whole number of MiB", _MIB_FORMS
    if _BINARY.fullmatch(text):
        problem = "counts MiB and takes no unit"
        with contextlib.suppress(ValueError):
            hint = f"{quantity_to_mib(text)} for {text}"
    return RequestError(subject=subject, field=field, value=text, problem=problem, accepted=hint)


def _quantity(value: str | float, subject: str, field: str) -> Fraction:
    try:
        return parse_quantity(_text(value))
    except ValueError as error:
        raise RequestError(
            subject=subject,
            field=field,
            value=shorten(value),
            problem=str(error),
            accepted="a Kubernetes quantity, such as 2, 500m or 4Gi",
        ) from None


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else str(shorten(value))
