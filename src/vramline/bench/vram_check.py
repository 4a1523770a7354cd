"""Counts a log of the VRAM benchmark again: whether the card had what a pod was promised on it.

Shares no code with the engine, with the rules, or with the simulation that wrote the log.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = ["LogEntry", "OverCommit", "find_over_commits"]


class LogEntry(NamedTuple):
    """One thing that happened, in order of time: what, who, on which card, how much."""

    at: float
    what: str
    """promised | took | left: a pod was promised memory, took it (how much really), or the card has it back;
    came | went: a stranger."""
    who: str
    card: str
    mib: int = 0


class OverCommit(NamedTuple):
    """A promise that the card could not keep in the moment it was made."""

    at: float
    who: str
    card: str
    short: int
    """MiB."""


def find_over_commits(usable: Mapping[str, int], log: Iterable[LogEntry]) -> list[OverCommit]:
    """Return every promise of more than was left.

    A pod holds the larger of what it was promised and what it took, from the promise until the card has its
    memory back; promised twice on a card, it holds both. A stranger holds what it took.
    """
    held: dict[str, dict[str, int]] = defaultdict(dict)
    found = []
    for entry in log:
        on_card = held[entry.card]
        if entry.what in ("promised", "came"):
            left = usable[entry.card] - sum(on_card.values())
            if entry.what == "promised" and entry.mib > left:
                found.append(OverCommit(entry.at, entry.who, entry.card, entry.mib - left))
            on_card[entry.who] = on_card.get(entry.who, 0) + entry.mib
        elif entry.what == "took":
            on_card[entry.who] = max(on_card[entry.who], entry.mib)
        else:
            del on_card[entry.who]
    return found
