"""The knobs of one decision, already resolved from settings, command line and annotations."""

import msgspec

from vramline.model.ask import Ask, PolicyName, RealtimeMode

__all__ = ["Rules", "mode_when_enabled", "rules_for"]


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


def mode_when_enabled(mode: RealtimeMode, *, enabled: bool | None) -> RealtimeMode:
    """Join a mode with an on/off switch, the same way for flag, environment and annotation.

    Off means disabled. On means the mode otherwise in force, or strict if that is disabled.
    """
    if enabled is None:
        return mode
    if not enabled:
        return RealtimeMode.DISABLED
    return RealtimeMode.STRICT if mode is RealtimeMode.DISABLED else mode


def rules_for(rules: Rules, ask: Ask) -> Rules:
    """Return the rules for one pod: its own annotations win over what is in force for the cluster."""
    mode = ask.mode or mode_when_enabled(rules.mode, enabled=ask.enable_realtime)
    return rules if mode is rules.mode else msgspec.structs.replace(rules, mode=mode)
