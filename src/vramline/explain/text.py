"""Wording that several explanations share. One line each; numbers as people write them."""

from collections.abc import Sequence
from typing import assert_never

from vramline.model.ask import Ask, MibSize, ShareSize, UnsizedSize, WholeSize
from vramline.model.reason import Reason

__all__ = ["card_name", "clip", "histogram", "join_names", "say_ask", "seconds"]

_DETAIL_LIMIT = 160
"""Characters of a node's own account of its problem that a one-line message repeats."""


def card_name(node: str, uuid: str) -> str:
    """Name a card so that it can be found.

    >>> card_name("n3", "GPU-1"), card_name("n3", "n3/gpu-0")
    ('n3/GPU-1', 'n3/gpu-0')
    """
    return uuid if uuid.startswith(f"{node}/") else f"{node}/{uuid}"


def seconds(age_s: float) -> str:
    """Write an age.

    >>> seconds(119.6), seconds(86400.0)
    ('120 s', '86,400 s')
    """
    return f"{age_s:,.0f} s"


def join_names(names: Sequence[str], *, last: str = "and") -> str:
    """Join names as a sentence does.

    >>> join_names(["a"]), join_names(["a", "b", "c"]), join_names(["a", "b"], last="or")
    ('a', 'a, b and c', 'a or b')
    """
    return f" {last} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def clip(text: str) -> str:
    """Put a foreign sentence on one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= _DETAIL_LIMIT else f"{line[: _DETAIL_LIMIT - 1]}…"


def histogram(counts: dict[Reason, int], *, first: Reason | None = None, detail: str = "") -> str:
    """List reasons with their counts: `first` (with its detail) leads, then the most frequent.

    >>> histogram({Reason.NO_SUCH_GPU: 3, Reason.WRONG_MODEL: 2}, first=Reason.WRONG_MODEL, detail="why")
    '2 WrongModel (why), 3 NoSuchGpu'
    """
    order = sorted(counts, key=lambda reason: (reason is not first, -counts[reason], reason))
    return ", ".join(
        f"{counts[reason]:,} {reason}" + (f" ({detail})" if detail and reason is first else "")
        for reason in order
    )


def say_ask(ask: Ask) -> str:
    """Say what a pod wants, in few words: `2 x 8000 MiB`, `1 x 1/4 of a card`, `4 x a whole card`."""
    match ask.size:
        case MibSize(mib):
            size = f"{mib} MiB"
        case ShareSize(numerator, denominator):
            size = f"{numerator}/{denominator} of a card"
        case WholeSize():
            size = "a whole card"
        case UnsizedSize():
            size = "a card"
        case _:
            assert_never(ask.size)
    return f"{ask.gpus} x {size}"
