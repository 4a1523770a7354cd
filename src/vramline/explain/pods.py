"""A pod as people look at it: one line in a list, and the whole story of why it is where it is."""

import msgspec

from vramline.explain.cards import CardState
from vramline.explain.decision import Explanation
from vramline.explain.history import DecisionRecord
from vramline.model.pod import GpuShare

__all__ = ["PodStory", "PodView", "say_hint"]


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


def say_hint(nominated: str, node: str | None) -> str:
    """Say that kube-scheduler was to try a node first; `node` is where the pod went, None: it waits.

    >>> say_hint("n1", None)
    'kube-scheduler tries n1 first, as it was told ahead; nothing is promised there'
    >>> say_hint("n1", "n1")
    'kube-scheduler was told ahead to try n1 first, and took it'
    >>> say_hint("n1", "n2")
    'kube-scheduler was told ahead to try n1 first; it did not do, or that came too late'
    """
    if node is None:
        return f"kube-scheduler tries {nominated} first, as it was told ahead; nothing is promised there"
    told = f"kube-scheduler was told ahead to try {nominated} first"
    return f"{told}, and took it" if node == nominated else f"{told}; it did not do, or that came too late"


class PodStory(msgspec.Struct, frozen=True, kw_only=True):
    """One pod with everything that is known about why it is where it is."""

    pod: PodView
    hint: str = ""
    """Which node kube-scheduler was told to try first, and what came of it; empty: none."""
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
