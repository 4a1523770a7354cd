"""The knobs of one decision, already resolved from settings, command line and annotations."""

import msgspec

from vramline.model.ask import Ask, PolicyName, RealtimeMode

__all__ = ["Rules", "mode_on_node", "mode_when_enabled", "rules_for"]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How to decide."""

    mode: RealtimeMode = RealtimeMode.STRICT
    """In force on nodes that have no mode of their own."""
    cluster_mode: RealtimeMode | None = None
    """What it would be, had the pod said nothing; None: the pod said nothing."""
    pod_mode: RealtimeMode | None = None
    pod_enabled: bool | None = None
    """What the pod's own annotations say; they win over a node's mode, which wins over the cluster's."""
    policy: PolicyName = PolicyName.VRAMLINE
    max_age_s: float = 90.0
    """An observation older than this is stale."""
    stream_max_age_s: float = 5.0
    """The same for what an agent streams."""
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
    """Return the rules for one pod: its own annotations win over what is in force for node and cluster."""
    if ask.mode is None and ask.enable_realtime is None:
        return rules
    return msgspec.structs.replace(
        rules,
        mode=ask.mode or mode_when_enabled(rules.mode, enabled=ask.enable_realtime),
        cluster_mode=rules.mode,
        pod_mode=ask.mode,
        pod_enabled=ask.enable_realtime,
    )


def mode_on_node(rules: Rules, own: RealtimeMode | None, *, enabled: bool) -> RealtimeMode:
    """Return the mode in force on a node with this mode of its own, and this switch."""
    if rules.pod_mode is not None:
        return rules.pod_mode
    cluster = rules.cluster_mode or rules.mode
    mode = own or mode_when_enabled(cluster, enabled=True if enabled else None)
    return mode_when_enabled(mode, enabled=rules.pod_enabled)
