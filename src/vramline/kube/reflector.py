"""Keep a mirror in step with the API server, whatever happens to the connection.

    snapshot ──► watch ──regular end──► watch again from the last version
       ▲           │ broken, silent: wait a little, watch again from the last version
       └───────────┘ 410, too old:   snapshot; the difference shows what ended meanwhile

A snapshot is a watch that starts with everything there is (`sendInitialEvents`), or a list in pages where the
API server does not offer that. Either way it is handed on whole, so that no consumer sees half of it.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Generic, TypeVar

import msgspec
import structlog

from vramline.kube.client import KubeClient, Selection
from vramline.kube.failures import ApiError, GoneError, InvalidError, ThrottledError, UnavailableError
from vramline.kube.mirror import (
    Arrived,
    Change,
    Departed,
    Listed,
    Message,
    Mirror,
    Reached,
    Resumed,
    Snapshot,
)
from vramline.kube.objects import EVERYTHING, Item, Resource, Stored, WatchLine, read_bookmark
from vramline.kube.pace import Pace, delay_s
from vramline.kube.second_lister import Piece

__all__ = ["Reflector", "ReflectorTiming"]

T = TypeVar("T")

_BREATH = 256
"""Changes handed on before other tasks get their turn."""


class ReflectorTiming(msgspec.Struct, frozen=True, kw_only=True):
    """How patient a reflector is."""

    watch_s: float = 300.0
    """A watch is ended by the server after this to twice this."""
    idle_s: float = 90.0
    """Silence after which a connection is taken for dead; bookmarks come every minute."""
    shortest_watch_s: float = 1.0
    """A watch that ends sooner without a word counts as failed."""
    pace: Pace = Pace()
    stale_lists: int = 5
    """How many lists in a row may be older than what is known before they are believed: after a store was
    restored from a backup, time really has gone back."""


class Reflector(Generic[T]):
    """Follows all objects of one kind, or a selection of them, for one consumer."""

    def __init__(
        self,
        client: KubeClient,
        resource: Resource[T],
        *,
        rng: random.Random,
        selection: Selection | None = None,
        timing: ReflectorTiming | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.resource = resource
        self.synced = False
        """Whether everything there was at some moment has been handed on."""
        self.heard_at: float | None = None
        """When the API server last said anything, by `clock`."""
        self.problem = ""
        """Why the watch is broken at the moment; empty: it is not."""
        self.second: Callable[[], AsyncIterator[Piece[T]]] | None = None
        """Lists in another process what there is at the start; where it ends too early, it is listed here."""
        self.take_new: Callable[[list[Stored[T]]], None] | None = None
        """Takes in many objects of the first list as if each was `Added`; None: they come one by one."""
        self._client = client
        self._rng = rng
        self._selection = selection or Selection()
        self._timing = timing or ReflectorTiming()
        self._clock = clock
        self._mirror: Mirror[T] = Mirror()
        self._wants_snapshot = True
        self._can_stream = True
        self._stale = 0
        self._was_open = False
        """Whether the watch at hand was granted: what breaks after a while did work, even in silence."""
        self._log = structlog.get_logger().bind(resource=resource.plural)

    def resync(self) -> None:
        """Take a new snapshot at the next opportunity and hand on any difference."""
        self._wants_snapshot = True

    async def run(self, deliver: Callable[[Change[T]], None]) -> None:
        """Hand on every change, in order, until cancelled. What `deliver` raises ends it."""
        failures = 0
        while True:
            started, heard_before = self._clock(), self.heard_at
            self._was_open = False
            try:
                await self._follow(deliver)
                problem: ApiError | None = None
            except ApiError as error:
                problem = error
            lasted = self._was_open and self._clock() - started >= self._timing.shortest_watch_s
            if self.heard_at != heard_before or lasted:
                failures = 0
                if problem is None:
                    continue
            if isinstance(problem, GoneError):
                self._wants_snapshot = True
            failures += 1
            await self._wait(problem or UnavailableError("the watch ended at once, without a word"), failures)

    async def _wait(self, problem: ApiError, failures: int) -> None:
        self.problem = str(problem)
        wait_s = delay_s(self._timing.pace, failures, self._rng)
        if isinstance(problem, ThrottledError):
            wait_s = max(wait_s, problem.retry_after_s)
        self._log.warning("watch.broken", problem=self.problem, failures=failures, wait_s=round(wait_s, 3))
        await asyncio.sleep(wait_s)

    # ── from the wire to the mirror ──────────────────────────────────────────────────────────────────
    async def _follow(self, deliver: Callable[[Change[T]], None]) -> None:
        """Take a snapshot where one is needed, then watch until the watch ends or breaks."""
        if self.second is not None:
            pieces, self.second = self.second(), None
            await self._take_listed(pieces, deliver)
        if self._wants_snapshot and self._can_stream:
            try:
                return await self._watch(EVERYTHING, deliver)
            except InvalidError as error:
                self._log.info("watchlist.refused", problem=str(error))
                self._can_stream = False
        if self._wants_snapshot:
            listing = await self._client.list(self.resource, self._selection)
            await self._replace((*listing.items, *listing.unreadable), listing.version, deliver)
        await self._watch({"resourceVersion": str(self._mirror.version)}, deliver)
        return None

    async def _take_listed(
        self, pieces: AsyncIterator[Piece[T]], deliver: Callable[[Change[T]], None]
    ) -> None:
        """Hand on what another process lists, as it comes; the consumer waits for the end anyway."""
        async for piece in pieces:
            self._take_some(piece.items, deliver)
            await asyncio.sleep(0)
            if piece.version:
                self._wants_snapshot = False
                self.heard_at = self._clock()
                await self._hand_on(Listed(piece.version), deliver)
                self._settle_snapshot(piece.version)

    def _take_some(self, items: Sequence[Item[T]], deliver: Callable[[Change[T]], None]) -> None:
        """Hand on some of what is listed for the first time, together where somebody takes it so."""
        if self.take_new is not None:
            new, items = self._mirror.meet(items)
            self.take_new(new)
        for item in items:
            for change in self._mirror.step(Arrived(item)):
                deliver(change)

    async def _watch(self, query: dict[str, str], deliver: Callable[[Change[T]], None]) -> None:
        """Watch until the regular end, or until a new snapshot is wanted."""
        timing = self._timing
        limit = {"timeoutSeconds": str(int(timing.watch_s * (1 + self._rng.random())))}
        initial: list[Item[T]] | None = [] if query is EVERYTHING else None
        chosen, idle_s = self._selection, timing.idle_s
        async with self._client.watch(self.resource, chosen, query | limit, idle_s=idle_s) as watch:
            self._was_open = True
            if initial is None:
                await self._hand_on(Resumed(), deliver)
            while lines := await watch.lines():
                self.heard_at = self._clock()
                for line in lines:
                    initial = await self._take(line, initial, deliver)
                if self._wants_snapshot and initial is None:
                    return

    async def _take(
        self, line: WatchLine[T], initial: list[Item[T]] | None, deliver: Callable[[Change[T]], None]
    ) -> list[Item[T]] | None:
        """Take in one line; `initial` gathers what was there already, and is None once that is complete."""
        if line.type == "BOOKMARK" and isinstance(line.object, msgspec.Raw):
            version, is_end = read_bookmark(line.object)
            if initial is None:
                await self._hand_on(Reached(version), deliver)
            elif is_end:
                await self._replace(tuple(initial), version, deliver)
                return None
            return initial
        item = line.item(self.resource)
        if initial is not None:
            initial.append(item)
        elif line.type == "DELETED":
            await self._hand_on(Departed(item.key, item.version), deliver)
        else:
            await self._hand_on(Arrived(item), deliver)
        return initial

    async def _replace(
        self, items: tuple[Item[T], ...], version: int, deliver: Callable[[Change[T]], None]
    ) -> None:
        """Hand on a snapshot, unless it is older than what is known."""
        if version < self._mirror.version:
            self._stale += 1
            if self._stale < self._timing.stale_lists:
                raise UnavailableError(
                    f"{self.resource.plural} as of version {version}, but {self._mirror.version} was seen"
                )
            self._log.warning("mirror.went_back", version=version, known=self._mirror.version)
        self._stale = 0
        self._wants_snapshot = False
        self.heard_at = self._clock()
        if self.take_new is None or len(self._mirror):
            await self._hand_on(Snapshot(items, version), deliver)
        else:
            for start in range(0, len(items), _BREATH):
                self._take_some(items[start : start + _BREATH], deliver)
                await asyncio.sleep(0)
            await self._hand_on(Listed(version), deliver)
        self._settle_snapshot(version)

    def _settle_snapshot(self, version: int) -> None:
        self.synced = True
        self._log.info("mirror.synced", version=version, objects=len(self._mirror))

    async def _hand_on(self, message: Message[T], deliver: Callable[[Change[T]], None]) -> None:
        self.problem = ""
        for position, change in enumerate(self._mirror.step(message), start=1):
            deliver(change)
            if position % _BREATH == 0:
                await asyncio.sleep(0)
