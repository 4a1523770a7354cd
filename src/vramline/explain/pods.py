"""A pod as people look at it: one line in a list, and the whole story of why it is where it is."""

import msgspec

from vramline.explain.cards import CardState
from vramline.explain.decision import Explanation
from vramline.explain.history import DecisionRecord
from vramline.model.pod import GpuShare

__all__ = ["PodStory", "PodView"]


class PodView(msgspec.Struct, frozen=True, kw_only=True):
    """One pod in a list."""

    pod: str
    uid: str
    status: str
    """Pending, Bound, Running, Releasing, Finished; Gone: only its last decisions are still known."""
    asks: str
    """What it wants of GPUs, for people; empty: nothing."""
    node: str | None
    gpus: list[GpuShare]
    priority: int
    age_s: float | None
    reason: str | None
    """Why it is pending, as of its last attempt; None: it is not pending, or was not tried yet."""
    message: str
    """What the last decision about it said."""


class PodStory(msgspec.Struct, frozen=True, kw_only=True):
    """One pod with everything that is known about why it is where it is."""

    pod: PodView
    now: Explanation | None
    """For a pending pod: what a decision at this moment would say."""
    decision: DecisionRecord | None
    """The newest recorded decision."""
    changed: list[str]
    """What that decision saw differently than the one before it (filter and bind, or two attempts)."""
    cards: list[CardState]
    """The cards it holds, as they are now."""
    history: list[DecisionRecord]
    """Older decisions, newest first, without their nodes."""
