"""Writes the node's report: when it says something new, and at least every so often.

The newest report wins: while the API server is away, sampling goes on, and what is written after it is back
is the latest. A card that changes all the time may not flood the API server: beside the regular writes there
is a small allowance that fills up slowly.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Protocol

import msgspec
import structlog

from vramline.agent.changes import is_news
from vramline.errors import VramlineError
from vramline.kube.pace import Pace, delay_s
from vramline.units import Mib
from vramline.wire.report_v1alpha1 import GpuReport

__all__ = ["Allowance", "Publisher", "PublishingRules", "ReportStore"]


class PublishingRules(msgspec.Struct, frozen=True, kw_only=True):
    """How often, and for what."""

    at_least_every_s: float = 30.0
    threshold: Mib = Mib(64)
    burst: int = 5
    """So many changes may be written at once …"""
    refill_s: float = 5.0
    """… and one more after each of these."""
    pace: Pace = Pace(first_s=0.5, most_s=30.0)


class ReportStore(Protocol):
    """Where reports go."""

    async def write(self, report: GpuReport) -> None:
        """Make this the node's report; raises `VramlineError`."""


class Allowance:
    """A number of writes that fills up with time."""

    def __init__(self, rules: PublishingRules, now: float) -> None:
        self._rules = rules
        self._left = float(rules.burst)
        self._at = now

    def take(self, now: float) -> bool:
        """Use one, if there is one."""
        self._left = min(float(self._rules.burst), self._left + (now - self._at) / self._rules.refill_s)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Publisher:
    """Keeps the newest report, and writes it when it is time."""

    def __init__(
        self,
        store: ReportStore,
        rules: PublishingRules,
        *,
        clock: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self._store = store
        self._rules = rules
        self._clock = clock
        self._rng = rng
        self._allowance = Allowance(rules, clock())
        self._newest: GpuReport | None = None
        self._written: GpuReport | None = None
        self._written_at = float("-inf")
        self._offered = asyncio.Event()
        self.writes = 0
        self.failures = 0

    def offer(self, report: GpuReport) -> None:
        """Take the newest report; what was not written yet is forgotten."""
        self._newest = report
        self._offered.set()

    async def run(self) -> None:
        """Write for ever; one failure after the other makes the waits longer."""
        failures = 0
        while True:
            await self._offered.wait()
            self._offered.clear()
            if self._newest is None or not (failures or self._is_time(self._newest)):
                continue
            if await self._write(self._newest):
                failures = 0
                continue
            failures += 1
            await asyncio.sleep(delay_s(self._rules.pace, failures, self._rng))
            self._offered.set()

    async def flush(self) -> None:
        """Write the newest report once, if it was not."""
        if self._newest is not None and self._newest is not self._written:
            await self._write(self._newest)

    def _is_time(self, report: GpuReport) -> bool:
        now = self._clock()
        if now - self._written_at >= self._rules.at_least_every_s:
            return True
        return is_news(self._written, report, threshold=self._rules.threshold) and self._allowance.take(now)

    async def _write(self, report: GpuReport) -> bool:
        log = structlog.get_logger()
        try:
            await self._store.write(report)
        except VramlineError as error:
            self.failures += 1
            log.warning("report.failed", node=report.node, error=str(error))
            return False
        self.writes += 1
        self._written, self._written_at = report, self._clock()
        return True
