"""The real-time check: which figure of "free" counts, and which cards are preferred because of it.

strict     refuses by the card's own word; without a fresh word, by the books (or refuses: a setting)
warning    decides by the books, prefers cards that strict would have accepted, warns otherwise
disabled   decides by the books alone
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramline.model.ask import RealtimeMode
from vramline.model.columns import NODE_MODES, GpuColumns
from vramline.model.rules import Rules, mode_on_node

__all__ = ["KNOWN", "STRICT_REFUSES", "UNKNOWN", "Look", "look_at_cards", "only_tier", "prefer"]

_MODES = tuple(RealtimeMode)

KNOWN, UNKNOWN, STRICT_REFUSES = 0, 1, 2
"""Tiers of preference, best first. A card nobody saw never ranks above one that was seen."""


class Look(NamedTuple):
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
    modes: npt.NDArray[np.int8] | None = None
    """Which of `_MODES` is in force for each row; None: `rules.mode`, for all."""

    def in_mode(self, mode: RealtimeMode) -> npt.NDArray[np.bool_] | bool:
        """Return by row whether this mode is in force, or the same answer for all rows."""
        return self.rules.mode is mode if self.modes is None else self.modes == _MODES.index(mode)

    def mode_at(self, row: int) -> RealtimeMode:
        """Return the mode in force for one row."""
        return self.rules.mode if self.modes is None else _MODES[self.modes[row]]


def look_at_cards(columns: GpuColumns, rules: Rules, *, now: float) -> Look:
    """Choose the basis of "free" for every card."""
    fresh = columns.fresh(now=now, max_age_s=rules.max_age_s)
    strict_free = np.where(fresh, columns.free_observed, columns.free_books)
    modes = _modes_of_nodes(columns, rules)
    if modes is not None:
        strict = modes == _MODES.index(RealtimeMode.STRICT)
        free = np.where(strict, strict_free, columns.free_books)
        return Look(columns, rules, now, free, strict_free, fresh, fresh & strict, modes)
    if rules.mode is RealtimeMode.STRICT:
        return Look(columns, rules, now, strict_free, strict_free, fresh, fresh)
    unseen = np.zeros(len(columns), dtype=np.bool_)
    return Look(columns, rules, now, columns.free_books.copy(), strict_free, fresh, unseen)


def only_tier(look: Look) -> int | None:
    """Return the tier of all these cards, whatever is asked for; None: there are several, or may be."""
    if look.modes is not None or look.rules.mode is RealtimeMode.WARNING:
        return None
    if look.rules.mode is RealtimeMode.DISABLED:
        return KNOWN
    fresh = np.count_nonzero(look.fresh)
    if fresh == len(look.fresh):
        return KNOWN
    return None if fresh else UNKNOWN


def prefer(look: Look, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the tier of each card that fits. It outranks every policy score."""
    if look.modes is None and look.rules.mode is RealtimeMode.DISABLED:
        return np.zeros(len(sizes), dtype=np.int64)
    tiers = np.where(look.fresh, KNOWN, UNKNOWN)
    if look.modes is None and look.rules.mode is RealtimeMode.STRICT:
        return tiers  # what fits there is what strict accepts
    refused = look.strict_free < sizes
    if look.rules.stale_refuses:
        refused |= ~look.fresh
    tiers = np.where(refused, STRICT_REFUSES, tiers)
    return tiers if look.modes is None else np.where(look.in_mode(RealtimeMode.DISABLED), KNOWN, tiers)


def _modes_of_nodes(columns: GpuColumns, rules: Rules) -> npt.NDArray[np.int8] | None:
    """Return the mode in force for each row; None: no node has one of its own that would count."""
    if rules.pod_mode is not None or not columns.has_node_modes:
        return None
    in_force = [mode_on_node(rules, own, enabled=enabled) for own, enabled in NODE_MODES]
    table = np.array([_MODES.index(mode) for mode in in_force], dtype=np.int8)
    by_row: npt.NDArray[np.int8] = table[columns.node_mode]
    return by_row
