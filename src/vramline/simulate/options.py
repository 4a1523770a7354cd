"""How to run: the settings in force, and what one run wants besides."""

from collections.abc import Callable
from dataclasses import dataclass

from vramline.model.decision import Decision
from vramline.model.fleet import DEFAULT_MARGIN, Fleet
from vramline.model.node import NodePool
from vramline.model.rules import Rules
from vramline.settings import Settings, pool_from, rules_from
from vramline.units import Mib

__all__ = ["RunOptions", "options_from"]


def _look_away(_fleet: Fleet, _decision: Decision) -> None:
    """Nobody wants to see decisions."""


def _silent(_done: int, _total: int) -> None:
    """Report to nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run."""

    rules: Rules
    margin: Mib = DEFAULT_MARGIN
    release_grace_s: float = 60.0
    pool: NodePool | None = None
    """Where GPU pods may go; None: all nodes."""
    now: float | None = None
    """Seconds since the epoch; None: the newest time in the input."""
    all_nodes: bool = False
    """List every node for every pod, not only the nearest misses of those that were not placed."""
    on_decision: Callable[[Fleet, Decision], None] = _look_away
    """Called with every decision while the fleet still is as the decision saw it."""
    report: Callable[[int, int], None] = _silent
    """Called with how many pods have been placed, and of how many."""


def options_from(settings: Settings) -> RunOptions:
    """Return the options that the settings imply."""
    return RunOptions(
        rules=rules_from(settings),
        margin=settings.margin,
        release_grace_s=settings.release_grace_s,
        pool=pool_from(settings),
    )
