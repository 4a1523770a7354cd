"""Who of several replicas leads: election by a Lease object, and the epoch of each term.

    following ──record unchanged for its duration, or released──► write it ──done──► leading
    following ──record of an earlier start in the same place───► write it ──done──► leading
    leading ──renewed every `retry_s`──► leading
    leading ──no renewal within `renew_deadline_s`, or somebody else's record──► following

Whether a record has expired is judged by our own monotonic clock since we last saw it change; times inside
the record come from other machines' clocks and are never compared: a new version is a renewal even where such
a clock stands still. A term counts from the moment its write was *sent*, so that we stop believing in it
before anybody else may take over.

A Lease is no fence: whoever acts as leader does so under a precondition that carries the epoch.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable

import msgspec
import structlog
from msgspec.structs import replace

from vramline.kube.client import KubeClient
from vramline.kube.failures import ApiError, NotFoundError
from vramline.kube.objects import LEASES, Document, LeaseObject, ObjectKey, Stored, format_micro_time
from vramline.wire.times import seconds_of

__all__ = [
    "Action",
    "Callbacks",
    "Election",
    "Elector",
    "Failed",
    "Happening",
    "Look",
    "Moment",
    "Read",
    "Record",
    "Rest",
    "Terms",
    "Tick",
    "Write",
    "Written",
    "step",
]

_JITTER = 0.2
_RELEASE_S = 3.0


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of the election."""

    identity: str
    """Unique for each process, also for two starts of the same pod."""
    place: str = ""
    """How the identities of all starts in this very place begin, such as a pod's name and `_`. A container is
    started again only when it has ended, so what such a start held is free; empty: nothing is known."""
    lease_s: int = 15
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if not self.identity or not 0 < self.retry_s < self.renew_deadline_s < self.lease_s:
            raise ValueError("an identity, and retry_s < renew_deadline_s < lease_s, are needed")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What a Lease says. An empty holder: released."""

    holder: str
    epoch: int
    duration_s: int
    acquired_us: int
    renewed_us: int
    """Microseconds of the writer's clock; only ever compared for equality."""
    version: int = 0
    """Of the Lease object; 0: there is none yet."""


class Moment(msgspec.Struct, frozen=True):
    """Now."""

    monotonic: float
    wall_us: int
    epoch_floor: int = 0
    """The highest epoch in use anywhere: a new term begins above it, even where the Lease was deleted."""


# ── what can happen ──────────────────────────────────────────────────────────────────────────────────
class Tick(msgspec.Struct, frozen=True):
    """It is time to do something."""


class Read(msgspec.Struct, frozen=True):
    """The Lease was read; None: there is none."""

    record: Record | None


class Written(msgspec.Struct, frozen=True):
    """Our write was accepted."""

    record: Record


class Failed(msgspec.Struct, frozen=True):
    """A read or write failed, or what came of it is unknown."""


Happening = Tick | Read | Written | Failed


# ── what to do next ──────────────────────────────────────────────────────────────────────────────────
class Look(msgspec.Struct, frozen=True):
    """Read the Lease."""


class Write(msgspec.Struct, frozen=True):
    """Write this record; its version is the precondition, 0 means create."""

    record: Record


class Rest(msgspec.Struct, frozen=True):
    """Nothing to do until the next tick."""


Action = Look | Write | Rest


class Election(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one replica knows about the election."""

    terms: Terms
    seen: Record | None = None
    seen_at: float = 0.0
    """When `seen` last changed, by our clock."""
    is_sure: bool = False
    """Whether `seen` is our own record and nothing failed since, so that it can be renewed unread."""
    pending: Record | None = None
    pending_since: float = 0.0
    """A write that was sent, and when."""
    term: Record | None = None
    """The record by which we lead."""
    leads_until: float = 0.0
    highest_epoch: int = 0
    """Of all records ever seen."""

    def is_leading(self, now: float) -> bool:
        """Whether we may believe to be the leader at this moment."""
        return self.term is not None and now < self.leads_until


def step(state: Election, happening: Happening, now: Moment) -> tuple[Election, Action]:
    """Take in what happened and say what to do."""
    if state.term is not None and not state.is_leading(now.monotonic):
        state = replace(state, term=None, is_sure=False)
    match happening:
        case Tick():
            return _act(state, now) if state.is_sure else (state, Look())
        case Read():
            return _look_at(state, happening.record, now)
        case Written():
            return _win(state, happening.record, now), Rest()
        case Failed():
            return replace(state, is_sure=False), Rest()


def _act(state: Election, now: Moment) -> tuple[Election, Action]:
    """Renew what is ours, take what is free, and leave alone what is another's."""
    seen, terms = state.seen, state.terms
    if state.term is not None and seen is not None:
        wanted = replace(seen, renewed_us=now.wall_us)
    elif seen is not None and _is_held_by_another(state, seen, now):
        return state, Rest()
    else:
        wanted = Record(
            holder=terms.identity,
            epoch=max(state.highest_epoch, now.epoch_floor) + 1,
            duration_s=terms.lease_s,
            acquired_us=now.wall_us,
            renewed_us=now.wall_us,
            version=0 if seen is None else seen.version,
        )
    return replace(state, pending=wanted, pending_since=now.monotonic), Write(wanted)


def _is_held_by_another(state: Election, seen: Record, now: Moment) -> bool:
    place = state.terms.place
    if seen.holder in ("", state.terms.identity) or (place and seen.holder.startswith(place)):
        return False
    return now.monotonic < state.seen_at + seen.duration_s


def _look_at(state: Election, record: Record | None, now: Moment) -> tuple[Election, Action]:
    """Compare what was read with what was known."""
    if record is None:
        return _act(replace(state, seen=None, pending=None, term=None), now)
    if state.pending is not None and _is_same(record, state.pending):  # its answer was lost; it happened
        return _win(state, record, now), Rest()
    changed = state.seen is None or record.version != state.seen.version or not _is_same(record, state.seen)
    term = state.term
    ours = term is not None and (record.holder, record.epoch) == (term.holder, term.epoch)
    state = replace(
        state,
        seen=record,
        seen_at=now.monotonic if changed else state.seen_at,
        pending=None,
        term=record if ours else None,
        highest_epoch=max(state.highest_epoch, record.epoch),
    )
    return _act(state, now)


def _win(state: Election, record: Record, now: Moment) -> Election:
    """Our record is the one in force: we lead, counted from when it was sent."""
    until = state.pending_since + state.terms.renew_deadline_s
    leads = now.monotonic < until
    return replace(
        state,
        seen=record,
        seen_at=now.monotonic,
        is_sure=leads,
        pending=None,
        term=record if leads else None,
        leads_until=until,
        highest_epoch=max(state.highest_epoch, record.epoch),
    )


def _is_same(one: Record, other: Record) -> bool:
    return (one.holder, one.epoch, one.renewed_us) == (other.holder, other.epoch, other.renewed_us)


# ── the loop around it ───────────────────────────────────────────────────────────────────────────────
class Callbacks(msgspec.Struct, frozen=True, kw_only=True):
    """Whom the elector tells, and asks."""

    on_started: Callable[[int], None]
    """A term begins; its epoch."""
    on_stopped: Callable[[], None]
    """The term is over; told before anybody else may lead, if this process runs at all."""
    epoch_floor: Callable[[], int] = lambda: 0


class Elector:
    """One replica's part in the election."""

    def __init__(
        self,
        client: KubeClient,
        lease: ObjectKey,
        terms: Terms,
        callbacks: Callbacks,
        *,
        rng: random.Random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._lease = lease
        self._terms = terms
        self._callbacks = callbacks
        self._rng = rng
        self._clock = clock
        self._state = Election(terms=terms)
        self._told = 0
        self._log = structlog.get_logger().bind(lease=str(lease), identity=terms.identity)

    @property
    def epoch(self) -> int:
        """The epoch of our term at this very moment; 0: we do not lead."""
        state = self._state
        return state.term.epoch if state.term is not None and state.is_leading(self._clock()) else 0

    @property
    def holder(self) -> str:
        """Who leads, as far as is known; empty: nobody."""
        return "" if self._state.seen is None else self._state.seen.holder

    async def run(self, stop: asyncio.Event) -> None:
        """Take part until `stop` is set or this is cancelled, then give the Lease back."""
        try:
            while not stop.is_set():
                action = self._take_in(Tick())
                while not isinstance(action, Rest):
                    action = self._take_in(await self._carry_out(action))
                await self._pause(stop)
        finally:
            await self._resign()

    def _take_in(self, happening: Happening) -> Action:
        """Step, and tell whom it concerns what has changed."""
        moment = Moment(self._clock(), time.time_ns() // 1000, self._callbacks.epoch_floor())
        self._state, action = step(self._state, happening, moment)
        epoch = self._state.term.epoch if self._state.term is not None else 0
        if self._told not in (0, epoch):
            self._tell_end()
        if epoch and not self._told:
            self._told = epoch
            self._log.info("leader.started", epoch=epoch)
            self._callbacks.on_started(epoch)
        return action

    def _tell_end(self) -> None:
        self._log.info("leader.stopped", epoch=self._told)
        self._told = 0
        self._callbacks.on_stopped()

    async def _carry_out(self, action: Look | Write) -> Happening:
        """Do it before our term ends, or not at all."""
        limit_s = self._terms.renew_deadline_s
        if self._state.term is not None:
            limit_s = self._state.leads_until - self._clock()
        try:
            async with asyncio.timeout(limit_s):
                return await (self._look() if isinstance(action, Look) else self._write(action.record))
        except (ApiError, TimeoutError) as error:
            self._log.warning("lease.failed", problem=str(error) or f"no answer within {limit_s:.1f} s")
            return Failed()

    async def _look(self) -> Read:
        try:
            return Read(_record_of(await self._client.get(LEASES, self._lease), self._terms))
        except NotFoundError:
            return Read(None)

    async def _write(self, record: Record) -> Written:
        document = _document_of(self._lease, record)
        if record.version:
            stored = await self._client.update(LEASES, self._lease, document, version=record.version)
        else:
            stored = await self._client.create(LEASES, document, namespace=self._lease.namespace)
        return Written(replace(record, version=stored.version))

    async def _pause(self, stop: asyncio.Event) -> None:
        """Wait for the next tick, but not beyond the end of our term."""
        wait_s = self._terms.retry_s * (1 + _JITTER * self._rng.random())
        if self._state.term is not None:
            wait_s = min(wait_s, max(self._state.leads_until - self._clock(), 0.0))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await stop.wait()

    async def _resign(self) -> None:
        """End our term, and let the others know so that they need not wait."""
        held = self._state.term if self.epoch else None
        self._state = replace(self._state, term=None, is_sure=False)
        if self._told:
            self._tell_end()
        if held is None:
            return
        released = replace(held, holder="", duration_s=1, renewed_us=time.time_ns() // 1000)
        try:
            async with asyncio.timeout(_RELEASE_S):
                await self._write(released)
        except (ApiError, TimeoutError) as error:
            self._log.warning("lease.not_released", problem=str(error))


def _record_of(stored: Stored[LeaseObject], terms: Terms) -> Record:
    spec = stored.value.spec
    return Record(
        holder=spec.holder_identity or "",
        epoch=spec.lease_transitions or 0,
        duration_s=spec.lease_duration_seconds or terms.lease_s,
        acquired_us=0 if spec.acquire_time is None else round(seconds_of(spec.acquire_time) * 1e6),
        renewed_us=0 if spec.renew_time is None else round(seconds_of(spec.renew_time) * 1e6),
        version=stored.version,
    )


def _document_of(lease: ObjectKey, record: Record) -> Document:
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": lease.name, "namespace": lease.namespace},
        "spec": {
            "holderIdentity": record.holder,
            "leaseDurationSeconds": record.duration_s,
            "acquireTime": format_micro_time(record.acquired_us),
            "renewTime": format_micro_time(record.renewed_us),
            "leaseTransitions": record.epoch,
        },
    }
