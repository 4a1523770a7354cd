"""History that outlives the process: taken in without waiting, written by a thread of its own.

Nothing that happens to the file harms the work: what cannot be written is lost, counted and said once.
"""

import asyncio
import sqlite3
import time
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec
import structlog

from vramline.explain.chronicle import CardEvent, CardSample, ChronicleState, Span
from vramline.explain.history import DecisionRecord, History, KeptRecord, PodOutcome
from vramline.settings import Settings
from vramline.telemetry.archive_file import ArchiveBounds, ArchiveFile, CardRow

__all__ = ["Archive", "open_archive"]

T = TypeVar("T")

_EVERY_S = 1.0
_WORDS_S = 0.05
"""Seconds of every second that may go into finding words."""
_BURST = 20
"""More decisions than this in a second are a burst, which is written down after it…"""
_PATIENCE = 10
"""…but not later than after so many seconds."""
_MOST_WAITING = 10_000
"""Decisions, and card rows, that wait to be written; beyond that the oldest are lost."""
_AGAIN_S = 600.0
"""How long the same reason of the same waiting pod is not written down again."""
_MOST_TOLD = 20_000
_REOPEN_S = 60.0
_MOST_RECALLED = 1_000


class Archive:
    """A chronicle in a file. Satisfies `explain.chronicle.Chronicle`."""

    def __init__(
        self,
        path: str = "",
        bounds: ArchiveBounds | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """An empty `path`: in memory, gone with the process. `clock` judges what is too old."""
        self.problem = ""
        """Why what was to be written was not; empty: all is well again."""
        self.lost = 0
        self._on_reopened: Callable[[int], None] = lambda _: None
        self._path, self._bounds, self._clock = path, bounds or ArchiveBounds(), clock
        self._decisions: deque[Callable[[], DecisionRecord]] = deque()
        self._taken = 0
        self._rows: deque[CardRow] = deque()
        self._events: deque[CardEvent] = deque()
        self._told: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, "history")
        self._turn = asyncio.Lock()
        self._log = structlog.get_logger()
        self._file = ArchiveFile(path, self._bounds)
        self._tried_at = time.monotonic()
        if self._file.problem:
            self._log.warning("history.problem", problem=self._file.problem)

    def serve(self, history: History) -> None:
        """Keep every decision of a history from now on, and give it back what is known of earlier ones."""
        history.recall(self._recent())
        history.on_added = self.keep_decision
        self._on_reopened = history.skip_to

    def _recent(self) -> list[KeptRecord]:
        try:
            return self._file.recent(_MOST_RECALLED)
        except sqlite3.Error as error:
            self.problem = f"not read from {self._file.where}: {error}"
            return []

    # ── in ───────────────────────────────────────────────────────────────────────────────────────

    def keep_decision(self, read: Callable[[], DecisionRecord]) -> None:
        """Take a decision, or how to put it into words later; never waits, never fails."""
        self._decisions.append(read)
        self._taken += 1
        if len(self._decisions) > _MOST_WAITING:
            self._decisions.popleft()
            self.lost += 1

    def keep_cards(self, rows: Iterable[CardRow], events: Iterable[CardEvent]) -> None:
        """Take samples of cards and what befell them; never waits, never fails."""
        self._rows.extend(rows)
        self._events.extend(events)
        for waiting in (self._rows, self._events):
            while len(waiting) > 10 * _MOST_WAITING:
                waiting.popleft()
                self.lost += 1

    async def run(self) -> None:
        """Write what was taken, once a second until cancelled; whoever schedules pods comes first."""
        busy = 0
        while True:
            before = self._taken
            await asyncio.sleep(_EVERY_S)
            busy = busy + 1 if self._taken - before > _BURST else 0
            await self.flush(0.0 if 0 < busy <= _PATIENCE else _WORDS_S)

    async def flush(self, words_s: float = _WORDS_S) -> None:
        """Write what was taken so far, as far as words are found for it in `words_s` seconds."""
        async with self._turn:
            decisions = await self._find_words(words_s)
            rows, events = list(self._rows), list(self._events)
            self._rows.clear()
            self._events.clear()
            if decisions or rows or events:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._thread, self._write, decisions, rows, events)

    async def close(self) -> None:
        """Write the rest, and let go of the file."""
        while self._decisions:
            await self.flush()
        await self.flush()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
        self._thread.shutdown(wait=False)

    async def _find_words(self, budget_s: float) -> list[DecisionRecord]:
        """Read decisions one at a time, so that nobody waits long for the loop, until the time is up."""
        found: list[DecisionRecord] = []
        while self._decisions and budget_s > 0:
            began = time.perf_counter()
            record = self._decisions.popleft()()
            budget_s -= time.perf_counter() - began
            if self._is_news(record):
                found.append(record)
            await asyncio.sleep(0)
        return found

    def _is_news(self, record: DecisionRecord) -> bool:
        """Whether a decision says more than the one before: a pod that waits is tried again and again."""
        if record.outcome is PodOutcome.BOUND:
            return True
        key = record.pod_uid, str(record.explanation.reason)
        last = self._told.get(key)
        if last is not None and record.at - last < _AGAIN_S:
            return False
        self._told[key] = record.at
        while len(self._told) > _MOST_TOLD:
            self._told.popitem(last=False)
        return True

    def _write(self, decisions: list[DecisionRecord], rows: list[CardRow], events: list[CardEvent]) -> None:
        """In the thread. What fails is lost, not tried again: there is more to come."""
        self._reopen_if_due()
        try:
            self._file.write(decisions, rows, events, now=self._clock())
        except (sqlite3.Error, OSError) as error:
            self.lost += len(decisions) + len(rows) + len(events)
            if not self.problem:
                self._log.warning("history.failed", file=self._file.where, problem=str(error))
            self.problem = f"not written to {self._file.where}: {error}"
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                self._renew()
        else:
            if self.problem:
                self._log.info("history.works_again", file=self._file.where, lost=self.lost)
            self.problem = ""

    def _reopen_if_due(self) -> None:
        """Try again to get a file that another process had, or whose folder was not there."""
        if not self._path or self._file.where == self._path or time.monotonic() - self._tried_at < _REOPEN_S:
            return
        self._renew()

    def _renew(self) -> None:
        self._tried_at = time.monotonic()
        found = ArchiveFile(self._path, self._bounds)
        if self._path and self._path not in {found.where, self._file.where}:
            found.close()
            return
        self._file.close()
        self._file = found
        self._log.warning("history.opened", file=found.where, problem=found.problem)
        self._on_reopened(found.last_id())

    # ── out ──────────────────────────────────────────────────────────────────────────────────────

    async def decisions_of(self, pod: str, *, most: int = 50) -> list[DecisionRecord]:
        """Return what was decided about a pod, newest first."""
        await self.flush()
        return await self._ask(lambda: self._file.decisions_of(pod, most), [])

    async def decisions(self, *, before: float | None = None, most: int = 100) -> list[DecisionRecord]:
        """Return decisions of all pods, newest first."""
        await self.flush()
        return await self._ask(lambda: self._file.decisions(before, most), [])

    async def samples(self, gpu: str, span: Span) -> list[CardSample]:
        """Return the samples of a card, oldest first."""
        await self.flush()
        return await self._ask(lambda: self._file.samples(gpu, span), [])

    async def events(self, gpu: str | None = None, *, most: int = 100) -> list[CardEvent]:
        """Return what befell a card, newest first."""
        await self.flush()
        return await self._ask(lambda: self._file.events(gpu, most), [])

    async def state(self) -> ChronicleState:
        """Say how the archive itself is."""
        unknown = ChronicleState(
            where=self._file.where,
            problem="it cannot be read",
            used_bytes=0,
            most_bytes=self._file.most_bytes,
            most_age_s=self._bounds.most_age_s,
            decisions=0,
            samples=0,
            oldest_at=None,
            lost=self.lost,
        )
        return await self._ask(lambda: self._file.state(self.problem, self.lost), unknown)

    async def _ask(self, question: Callable[[], T], otherwise: T) -> T:
        """Ask in the thread; a file that cannot be read any more answers nothing."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, question)
        except (sqlite3.Error, OSError, msgspec.MsgspecError, zlib.error) as error:
            self.problem = f"not read from {self._file.where}: {error}"
            self._log.warning("history.unreadable", file=self._file.where, problem=str(error))
            return otherwise


def open_archive(settings: Settings, *, clock: Callable[[], float]) -> Archive:
    """Return the archive that the settings name."""
    bounds = ArchiveBounds(settings.history_max_size * 2**20, settings.history_max_age_s)
    return Archive(settings.history_path, bounds, clock=clock)
