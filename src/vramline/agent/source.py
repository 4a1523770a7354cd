"""The cards of one vendor, read through its probe without ever waiting for it too long."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import structlog

from vramline.agent.cards import Cards, SeenCard
from vramline.agent.lane import Lane, LateError
from vramline.errors import TransientError
from vramline.probes.device import DeviceProbe, Failed, HealthEvent, ProbeError

__all__ = ["CardSource", "Look"]

_EVENTS_S = 5.0
"""How long one wait for faults lasts; it costs nothing while it waits."""
_LATE_S = 5.0
"""How much longer than promised such a wait may take."""
_MOST_EVENTS = 256
_REOPEN_S = 10.0
"""How long a library that cannot be used is left alone."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at all cards of a vendor brought."""

    cards: tuple[SeenCard, ...]
    notes: tuple[str, ...] = ()
    failure: Failed | None = None
    """Why nothing could be read; None: every card answered something, if only that it is lost."""


@dataclass(slots=True)
class CardSource:
    """One probe with its threads and what it remembers."""

    probe: DeviceProbe
    limit_s: float
    """After this a look is given up; longer than the probe's own limit for a card that hangs."""
    clock: Callable[[], float]
    cards: Cards = field(default_factory=Cards)
    has_looked: bool = False
    """Whether any look succeeded, so that the list of cards means something."""
    _reads: Lane = field(default_factory=lambda: Lane("card-reads"))
    _waits: Lane = field(default_factory=lambda: Lane("card-events"))
    _events: list[HealthEvent] = field(default_factory=list)
    _opened: asyncio.Event = field(default_factory=asyncio.Event)
    _closed_until: float = 0.0
    _closed_why: TransientError | OSError | None = None

    async def look(self) -> Look:
        """Read every card once. Never raises: what fails is in the answer."""
        try:
            await self._open()
            readings = await self._reads.run(self.probe.read, limit_s=self.limit_s)
        except LateError as error:
            return self._missed(Failed("TIMEOUT", str(error)), f"{self.probe.vendor}: {error}")
        except ProbeError as error:
            self._leave_alone(error)
            return self._missed(Failed(error.code, error.cause), str(error))
        except (TransientError, OSError) as error:
            self._leave_alone(error)
            return self._missed(Failed("UNKNOWN", str(error)), f"{self.probe.vendor}: {error}")
        events, self._events = self._events, []
        self.has_looked = True
        seen = self.cards.look(readings, events, self.clock())
        return Look(seen, self.cards.nameless)

    async def glance(self, uuids: Collection[str]) -> tuple[SeenCard, ...]:
        """Read only these cards, now; those that cannot be read are missing."""
        if not self._opened.is_set():
            return ()
        try:
            readings = await self._reads.run(lambda: self.probe.read(uuids), limit_s=self.limit_s)
        except (TransientError, OSError):
            return ()
        return self.cards.glance(readings)

    async def follow_events(self) -> None:
        """Collect what the driver reports, for ever."""
        log = structlog.get_logger()
        while True:
            await self._opened.wait()
            try:
                found = await self._waits.run(
                    lambda: self.probe.events(_EVENTS_S), limit_s=_EVENTS_S + _LATE_S
                )
            except (TransientError, OSError) as error:
                log.warning("events.failed", vendor=self.probe.vendor, error=str(error))
                await asyncio.sleep(_EVENTS_S)
                continue
            for event in found:
                log.warning("gpu.fault", gpu=event.uuid, xid=event.xid, text=event.text)
            self._events = [*self._events, *found][-_MOST_EVENTS:]

    def close(self) -> None:
        """Let the threads go; one that hangs does not keep the process."""
        self._reads.close()
        self._waits.close()

    async def _open(self) -> None:
        if self._opened.is_set():
            return
        if self._closed_why is not None and self.clock() < self._closed_until:
            raise self._closed_why
        await self._reads.run(self.probe.open, limit_s=self.limit_s)
        self._closed_why = None
        self._opened.set()
        structlog.get_logger().info("probe.opened", vendor=self.probe.vendor, source=self.probe.source)

    def _leave_alone(self, error: TransientError | OSError) -> None:
        """The library itself failed: open it anew, in a while. Until then this is the answer."""
        if error is not self._closed_why:
            self._closed_why, self._closed_until = error, self.clock() + _REOPEN_S
            self._opened.clear()

    def _missed(self, failure: Failed, note: str) -> Look:
        return Look(self.cards.miss(failure, self.clock()), (note,), failure)
