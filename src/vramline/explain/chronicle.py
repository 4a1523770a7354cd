"""What happened before now, as somebody keeps it: decisions, samples of cards, and what befell them.

`History` has the last decisions at hand; a chronicle has more of them, for longer, and outlives the process
where it is kept in a file. Reading takes a while, so every question is awaited.
"""

import enum
from typing import Protocol

import msgspec

from vramline.explain.history import DecisionRecord

__all__ = ["CardEvent", "CardEventKind", "CardSample", "Chronicle", "ChronicleState", "Span"]


class CardSample(msgspec.Struct, frozen=True, kw_only=True):
    """Where the memory of one card was, in MiB; None: nobody could tell.

    It stands until the next one: a card is written down again when a figure changes, and every ten minutes.
    A longer gap is a time of which nothing is known.
    """

    at: float
    """Seconds since the epoch."""
    usable_mib: int
    held_mib: int
    releasing_mib: int
    """Part of `held_mib`."""
    unmanaged_mib: int | None
    used_mib: int | None


class CardEventKind(enum.StrEnum):
    """What can befall a card."""

    HEALTH = "Health"
    """It became Healthy, Suspect, Unhealthy or Probation."""
    SIGHT = "Sight"
    """Nobody looks at it any more, or somebody does again."""
    GHOST = "Ghost"
    """Memory outlived its pod, or is free at last."""


class CardEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that befell a card."""

    at: float
    node: str
    gpu: str
    kind: CardEventKind
    text: str
    """In one sentence, without the card's name."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """From when to when, in seconds since the epoch, and how many points of it are wanted at most."""

    since: float
    until: float
    most: int = 1_000


class ChronicleState(msgspec.Struct, frozen=True, kw_only=True):
    """How the chronicle itself is."""

    where: str
    """The file, or `memory`."""
    problem: str
    """Why something is missing; empty: nothing is."""
    used_bytes: int
    most_bytes: int
    most_age_s: float
    decisions: int
    samples: int
    oldest_at: float | None
    """Of the decisions; None: there are none."""
    lost: int
    """Decisions, samples and events since the start that could not be written."""


class Chronicle(Protocol):
    """Answers about the past, newest first unless said otherwise. No question ever raises."""

    async def decisions_of(self, pod: str, *, most: int = 50) -> list[DecisionRecord]:
        """Return what was decided about a pod, by namespace/name, or by its name in all namespaces."""
        ...

    async def decisions(self, *, before: float | None = None, most: int = 100) -> list[DecisionRecord]:
        """Return decisions of all pods; `before`: only older ones, in seconds since the epoch."""
        ...

    async def samples(self, gpu: str, span: Span) -> list[CardSample]:
        """Return the samples of a card, oldest first; the one that stood when the span began is the first.

        Where there are more than `span.most`, those with the highest use stand for their neighbours.
        """
        ...

    async def events(self, gpu: str | None = None, *, most: int = 100) -> list[CardEvent]:
        """Return what befell a card; None: any card."""
        ...

    async def state(self) -> ChronicleState:
        """Say how the chronicle itself is."""
        ...
