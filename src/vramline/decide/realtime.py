"""The real-time check: which figure of "free" counts, and which cards are preferred because of it.

strict     refuses by the card's own word; without a fresh word, by the books (or refuses: a setting)
warning    decides by the books, prefers cards that strict would have accepted, warns otherwise
disabled   decides by the books alone
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vramline.model.ask import RealtimeMode
from vramline.model.columns import GpuColumns
from vramline.model.rules import Rules

__all__ = ["KNOWN", "STRICT_REFUSES", "UNKNOWN", "Look", "look_at_cards", "prefer"]

KNOWN, UNKNOWN, STRICT_REFUSES = 0, 1, 2
"""Tiers of preference, best first. A card nobody saw never ranks above one that was seen."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the cards say at one moment, by row, and the rules by which they are asked."""

    columns: GpuColumns
    rules: Rules
    now: float
    free: npt.NDArray[np.int64]
    """What may be promised on the basis the mode chose."""
    strict_free: npt.NDArray[np.int64]
    """What strict mode would promise."""
    fresh: npt.NDArray[np.bool_]
    """Whether there is an observation young enough to count."""
    observed: npt.NDArray[np.bool_]
    """Whether `free` rests on it."""


def look_at_cards(columns: GpuColumns, rules: Rules, *, now: float) -> Look:
    """Choose the basis of "free" for every card."""
    fresh = columns.observed_at >= now - rules.max_age_s
    strict_free = np.where(fresh, columns.free_observed, columns.free_books)
    if rules.mode is RealtimeMode.STRICT:
        return Look(columns, rules, now, strict_free, strict_free, fresh, fresh)
    unseen = np.zeros(len(columns), dtype=np.bool_)
    return Look(columns, rules, now, columns.free_books.copy(), strict_free, fresh, unseen)


def prefer(look: Look, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return each card's tier. It outranks every policy score."""
    if look.rules.mode is RealtimeMode.DISABLED:
        return np.zeros(len(sizes), dtype=np.int64)
    tiers = np.where(look.fresh, KNOWN, UNKNOWN)
    refused = look.strict_free < sizes
    if look.rules.stale_refuses:
        refused |= ~look.fresh
    return np.where(refused, STRICT_REFUSES, tiers)
