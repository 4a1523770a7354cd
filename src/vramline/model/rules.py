"""The knobs of one decision, already resolved from settings, command line and annotations."""

import msgspec

from vramline.model.ask import PolicyName, RealtimeMode

__all__ = ["Rules"]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How to decide."""

    mode: RealtimeMode = RealtimeMode.STRICT
    policy: PolicyName = PolicyName.BESTFIT
    max_age_s: float = 90.0
    """An observation older than this is stale."""
    stale_refuses: bool = False
    """Whether a card without a fresh observation is refused in strict mode, or counted by the books."""
    unsized_is_whole: bool = False
    """Whether a plain `nvidia.com/gpu: n` on a time-sliced card means the whole card instead of a share."""
    idle_utilization_percent: float = 30.0
    """Policy mostidle: a card is idle below this utilisation …"""
    idle_memory_percent: float = 50.0
    """… and below this share of memory in use."""
