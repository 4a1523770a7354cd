"""What would happen if pods came now."""

import msgspec

from vramline.explain.decision import Explanation
from vramline.model.decision import Placement

__all__ = ["Blocked", "WhatIfAnswer"]


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """The pods that found no place, and why: they are all alike, so one explanation serves them all."""

    pods: int
    explanation: Explanation


class WhatIfAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen if the pods came now, one after the other."""

    asked: int
    fit: int
    by_node: dict[str, int]
    """How many would go to each node."""
    placements: list[Placement]
    warnings: list[str]
    blocked: Blocked | None
