"""What the real-time check came to: counted, and told in the log in the words people grep for.

    Updated real-time device usage                      debug   a live look was answered
    Failed to get real-time usage, using cached data    info    a pod was placed without a fresh look
    Real-time memory check failed                       info    a card was refused that the books would give

A node is complained about once a minute at most, and a refused pod once a minute and node.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection

import numpy as np
import structlog

from vramline.model.ask import RealtimeMode
from vramline.model.decision import Decision
from vramline.model.fleet import Fleet
from vramline.model.observation import Observation, Unknown
from vramline.model.reason import CODE_OF, Reason, WarningCode
from vramline.scheduler.waiting import WaitingPods
from vramline.telemetry.tallies import Happening, Tallies

__all__ = ["Checks"]

_AGAIN_S = 60.0
_MOST_KEPT = 10_000
_SHORT = CODE_OF[Reason.INSUFFICIENT_VRAM]
_STALE = CODE_OF[Reason.STALE_OBSERVATION]


class Checks:
    """Takes note of decisions, at bind for every pod, at filter for those that fit nowhere."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        tell: Callable[[Decision], None] = lambda _: None,
    ) -> None:
        """`tell` hears of every pod that is placed where strict would have refused it."""
        self.tallies = Tallies()
        self.waiting = WaitingPods()
        """Those that fitted nowhere when they were last tried."""
        self._clock = clock
        self._tell = tell
        self._said: OrderedDict[tuple[str, ...], float] = OrderedDict()
        self._log = structlog.get_logger()

    def refused(self, fleet: Fleet, decision: Decision) -> None:
        """A pod fits nowhere in `fleet`; say so if it was the check, not the books, that refused it."""
        if decision.mode is RealtimeMode.DISABLED:
            return
        by_books = fleet.columns.free_books
        stopped = np.isin(decision.row_codes, (_SHORT, _STALE)) & (decision.sizes <= by_books)
        if not stopped.any():
            return
        rows = np.flatnonzero(stopped)
        row = int(rows[np.argmax(decision.free[rows])])
        self.tallies.count(Happening.CHECKS, decision.mode, "failed")
        self.tallies.count(Happening.CHANGED, decision.mode, "refused")
        self._say_refused(fleet, decision, row, free=int(decision.free[row]))

    def placed(self, fleet: Fleet, decision: Decision) -> None:
        """Cards of a node were chosen: say of each whether the check agreed, or could not tell."""
        if decision.placement is None or decision.mode is RealtimeMode.DISABLED:
            return
        warned = {each.gpu: each for each in decision.warnings if each.gpu}
        for share in decision.placement.gpus:
            warning = warned.get(share.uuid)
            row = fleet.columns.row_of[share.uuid]
            if warning is None:
                self.tallies.count(Happening.CHECKS, decision.mode, "passed")
            elif warning.code is WarningCode.STRICT_WOULD_REFUSE:
                self.tallies.count(Happening.CHECKS, decision.mode, "failed")
                self.tallies.count(Happening.CHANGED, decision.mode, "warned")
                self._say_refused(fleet, decision, row, free=warning.free)
                self._tell(decision)
            else:
                self.tallies.count(Happening.CHECKS, decision.mode, "fallen_back")
                age = "nobody ever looked" if warning.age_s is None else f"seen {warning.age_s:.0f} s ago"
                self.fell_back(decision.placement.node, [share.uuid], age)

    def other_cards(self, mode: RealtimeMode) -> None:
        """A live look led to other cards of the same node."""
        self.tallies.count(Happening.CHANGED, mode, "other_gpu")

    def updated(self, node: str, gpu: str, before: Observation | None, seen: Observation | None) -> None:
        """A live look at a card came in."""
        if seen is None:
            return
        self._log.debug(
            "Updated real-time device usage",
            nodeID=node,
            deviceID=gpu,
            cachedUsedMemMB=_known(None if before is None else before.used),
            realTimeUsedMemMB=_known(seen.used),
            utilization=_known(seen.utilization_percent),
            processCount=None if isinstance(seen.processes, Unknown) else len(seen.processes),
        )

    def fell_back(self, node: str, gpus: Collection[str], error: str) -> None:
        """Cards could not be looked at in time."""
        for gpu in gpus:
            if self._is_news("fell back", gpu):
                self._log.info(
                    "Failed to get real-time usage, using cached data",
                    nodeID=node,
                    deviceID=gpu,
                    error=error,
                )

    def _say_refused(self, fleet: Fleet, decision: Decision, row: int, *, free: int | None) -> None:
        gpu = fleet.columns.card(row)
        if not self._is_news("refused", decision.ask.pod_uid, gpu.node):
            return
        seen = fleet.observation(gpu.uuid)
        self._log.info(
            "Real-time memory check failed",
            pod=decision.ask.pod,
            device=gpu.uuid,
            requestedMem=int(decision.sizes[row]),
            realUsedMem=_known(None if seen is None else seen.used),
            totalMem=gpu.total,
            nodeID=gpu.node,
            freeMem=free,
            mode=decision.mode.value,
        )

    def _is_news(self, *about: str) -> bool:
        now = self._clock()
        if now - self._said.get(about, -_AGAIN_S) < _AGAIN_S:
            return False
        self._said[about] = now
        self._said.move_to_end(about)
        if len(self._said) > _MOST_KEPT:
            self._said.popitem(last=False)
        return True


def _known(value: int | Unknown | None) -> int | None:
    return None if isinstance(value, Unknown) else value
