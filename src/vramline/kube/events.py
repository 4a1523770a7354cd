"""Kubernetes Events: what `kubectl describe` shows, few of them, and never at the cost of the work itself.

The same thing said again about the same object becomes a count in the event that is there already, written at
most once a minute. What comes too fast waits in a short queue; what does not fit in is dropped and counted.
"""

import asyncio
import enum
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec
import structlog

from vramline.kube.client import KubeClient, Patch
from vramline.kube.failures import ApiError, NotFoundError
from vramline.kube.objects import EVENTS, Document, ObjectKey, format_micro_time

__all__ = [
    "Journal",
    "News",
    "Notice",
    "Recorder",
    "Regarding",
    "Repeat",
    "Reporter",
    "Severity",
    "TokenBucket",
    "shorten",
]

_NOTE_BYTES = 1024
"""The API server refuses longer notes."""


class Severity(enum.StrEnum):
    """What kind of news it is."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Regarding(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The object that an event is about."""

    api_version: str = "v1"
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


Topic = tuple[Regarding, str, str, Severity]


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something worth telling about an object."""

    regarding: Regarding
    reason: str
    """Why, one CamelCase word."""
    action: str
    """What was done or tried, one CamelCase word."""
    note: str
    severity: Severity = Severity.NORMAL

    def topic(self) -> Topic:
        """Return what makes two notices the same news; the note may differ in its figures."""
        return self.regarding, self.reason, self.action, self.severity


class News(msgspec.Struct, frozen=True):
    """Not told yet: write a new event."""

    notice: Notice


class Repeat(msgspec.Struct, frozen=True):
    """Told already and happened again: write how often."""

    notice: Notice
    key: ObjectKey
    count: int


class _Series(msgspec.Struct):
    key: ObjectKey
    note: str
    count: int
    written_at: float


class Journal:
    """What was told recently. No I/O and no clock of its own."""

    def __init__(self, *, repeat_s: float = 60.0, forget_s: float = 1800.0, limit: int = 4096) -> None:
        self._repeat_s = repeat_s
        self._forget_s = forget_s
        self._limit = limit
        self._series: OrderedDict[Topic, _Series] = OrderedDict()

    def enter(self, notice: Notice, now: float) -> News | Repeat | None:
        """Return what has to be written; None: nothing, it was counted.

        News in other words about the same topic is not worth more than one event in `repeat_s` either.
        """
        series = self._series.get(notice.topic())
        if series is None or now - series.written_at >= self._forget_s:
            return News(notice)
        series.count += 1
        if now - series.written_at < self._repeat_s:
            return None
        if notice.note != series.note:  # the API server lets nobody change the words of an event
            return News(notice)
        series.written_at = now
        return Repeat(notice, series.key, series.count)

    def keep(self, notice: Notice, key: ObjectKey, now: float) -> None:
        """Remember that an event is being written; the topics longest untouched are forgotten first."""
        self._series[notice.topic()] = _Series(key, notice.note, 1, now)
        self._series.move_to_end(notice.topic())
        while len(self._series) > self._limit:
            self._series.popitem(last=False)

    def forget(self, notice: Notice) -> None:
        """Treat the next notice of this topic as news: the event is not there."""
        self._series.pop(notice.topic(), None)


class TokenBucket:
    """A rate with room for bursts. No clock of its own."""

    def __init__(self, *, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._left = float(burst)
        self._filled_at: float | None = None

    def reserve(self, now: float) -> float:
        """Take the next place and return how many seconds to wait for it."""
        if self._filled_at is not None:
            self._left = min(self._burst, self._left + (now - self._filled_at) * self._per_s)
        self._filled_at = now
        self._left -= 1.0
        return max(0.0, -self._left / self._per_s)


class Reporter(msgspec.Struct, frozen=True):
    """Who tells."""

    controller: str
    """Such as `vramline.io/scheduler`."""
    instance: str


class Recorder:
    """Writes events in the background."""

    def __init__(
        self,
        client: KubeClient,
        reporter: Reporter,
        *,
        journal: Journal | None = None,
        bucket: TokenBucket | None = None,
        queue_limit: int = 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.written = 0
        self.dropped = 0
        """Notices that did not fit into the queue."""
        self.failed = 0
        """Events that the API server did not take."""
        self._client = client
        self._reporter = reporter
        self._journal = journal or Journal()
        self._bucket = bucket or TokenBucket(per_s=10.0, burst=50)
        self._queue: asyncio.Queue[tuple[News | Repeat, ObjectKey, int]] = asyncio.Queue(queue_limit)
        self._clock = clock
        self._last_us = 0
        self._log = structlog.get_logger()

    def record(self, notice: Notice) -> None:
        """Take a notice; never waits, never fails."""
        now = self._clock()
        self._last_us = wall_us = max(time.time_ns() // 1000, self._last_us + 1)  # names come from it
        entry = self._journal.enter(notice, now)
        if entry is None:
            return
        key = entry.key if isinstance(entry, Repeat) else _new_key(notice, wall_us)
        try:
            self._queue.put_nowait((entry, key, wall_us))
        except asyncio.QueueFull:
            self.dropped += 1
            return
        if isinstance(entry, News):
            self._journal.keep(notice, key, now)

    async def run(self) -> None:
        """Write what was recorded, until cancelled."""
        while True:
            entry, key, wall_us = await self._queue.get()
            try:
                await asyncio.sleep(self._bucket.reserve(self._clock()))
                await self._write(entry, key, wall_us)
            finally:
                self._queue.task_done()

    async def drain(self) -> None:
        """Wait until everything recorded so far was tried; `run` must be running."""
        await self._queue.join()

    async def _write(self, entry: News | Repeat, key: ObjectKey, wall_us: int) -> None:
        try:
            if isinstance(entry, Repeat):
                series = {"count": entry.count, "lastObservedTime": format_micro_time(wall_us)}
                await self._client.patch(EVENTS, key, Patch({"series": series}))
            else:
                document = _document_of(entry.notice, key, wall_us, self._reporter)
                await self._client.create(EVENTS, document, namespace=key.namespace)
        except ApiError as error:
            self.failed += 1
            self._journal.forget(entry.notice)
            if not isinstance(error, NotFoundError):  # an event lives an hour; counting on is no loss
                self._log.warning("event.failed", reason=entry.notice.reason, problem=str(error))
        else:
            self.written += 1


def shorten(note: str, limit: int = _NOTE_BYTES) -> str:
    """Cut a note to so many bytes, between characters.

    >>> shorten("123456789", 8)
    '12345…'
    """
    encoded = note.encode()
    if len(encoded) <= limit:
        return note
    return encoded[: limit - len("…".encode())].decode(errors="ignore") + "…"


def _new_key(notice: Notice, wall_us: int) -> ObjectKey:
    """Name an event after its object and the time; objects of the whole cluster are told of in `default`."""
    regarding = notice.regarding
    return ObjectKey(f"{regarding.name[:200]}.{wall_us:x}", regarding.namespace or "default")


def _document_of(notice: Notice, key: ObjectKey, wall_us: int, reporter: Reporter) -> Document:
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "eventTime": format_micro_time(wall_us),
        "reportingController": reporter.controller,
        "reportingInstance": reporter.instance,
        "action": notice.action,
        "reason": notice.reason,
        "regarding": notice.regarding,
        "note": shorten(notice.note),
        "type": notice.severity.value,
    }
