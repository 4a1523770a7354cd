"""The streams of the nodes' agents: samples come in, live looks go out.

A stream speaks for the node of its token and for no other. Whatever it sends, nonsense too, can harm what is
known of that node alone.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec
import structlog

from vramline.errors import RequestError
from vramline.model.observation import ObservationSource
from vramline.scheduler.doorkeeper import Admitted
from vramline.scheduler.sightings import Sightings
from vramline.scheduler.stream_clock import StreamClock
from vramline.wire.agent_stream_v1 import (
    AgentFrame,
    LookAnswer,
    LookRequest,
    Rest,
    decode_agent_frame,
    encode_frame,
    report_in,
)
from vramline.wire.times import seconds_of

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection

__all__ = ["AgentStreams", "Looked"]

_REPLACED, _EXPIRED, _TOO_MANY, _TOO_MUCH = 4000, 4001, 4002, 4003
"""Codes with which a stream is closed."""
_MOST_FRAMES_A_SECOND = 100
_MOST_CHARACTERS_A_SECOND = 4 * 2**20
_SEND_S = 1.0
_ROUNDING_S = 0.002
_SILENT_S = 5.0
"""A stream that said nothing for so long is not asked: its answer would not come either."""


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """How a live look ended. Cards in `missing` could not be read; `problem` is empty if all came in time."""

    took_s: float
    missing: tuple[str, ...] = ()
    problem: str = ""


class _Glance:
    """One look for everybody who asks before it is sent."""

    def __init__(self) -> None:
        self.gpus: set[str] = set()
        self.sent_at = 0.0
        self.answer: asyncio.Future[frozenset[str] | None] = asyncio.get_running_loop().create_future()
        """The cards that were seen; None: the look ended without an answer."""

    def end(self) -> None:
        if not self.answer.done():
            self.answer.set_result(None)


class _Stream:
    def __init__(self, node: str, connection: "ServerConnection") -> None:
        self.node = node
        self.connection = connection
        self.clock = StreamClock()
        self.looks: dict[int, _Glance] = {}
        self.looking: asyncio.Task[None] | None = None
        self._glance: _Glance | None = None
        self.heard_at = 0.0
        self.second, self.frames, self.size = 0, 0, 0
        self.log = structlog.get_logger().bind(node=node)
        self.complained: set[str] = set()

    def join(self, gpus: Collection[str]) -> _Glance:
        """Ask for these cards in the next look."""
        if self._glance is None:
            self._glance = _Glance()
        self._glance.gpus.update(gpus)
        return self._glance

    def take_glance(self) -> _Glance | None:
        """Return the next look that somebody waits for."""
        glance, self._glance = self._glance, None
        return glance

    def end(self) -> None:
        """Let nobody wait for an answer any more."""
        waiting = self.take_glance()
        if waiting is not None:
            waiting.end()
        for glance in self.looks.values():
            glance.end()

    def complain(self, event: str, **fields: object) -> None:
        """Say something about this stream once."""
        if event not in self.complained:
            self.complained.add(event)
            self.log.warning(event, **fields)

    def is_too_much(self, now: float, size: int) -> bool:
        """Count a frame; whether there are too many of them, or too large ones."""
        if int(now) != self.second:
            self.second, self.frames, self.size = int(now), 0, 0
        self.frames += 1
        self.size += size
        return self.frames > _MOST_FRAMES_A_SECOND or self.size > _MOST_CHARACTERS_A_SECOND


class AgentStreams:
    """At most one stream a node, the newest."""

    def __init__(
        self,
        sightings: Sightings,
        clock: Callable[[], float],
        *,
        most_nodes: int = 10_000,
        most_samples_s: int = 1_500,
    ) -> None:
        """From more than `most_samples_s` nodes on, agents send what is not new less often."""
        self._sightings = sightings
        self._clock = clock
        self._most_nodes = most_nodes
        self._most_samples_s = most_samples_s
        self._streams: dict[str, _Stream] = {}
        self._numbers = itertools.count(1)
        self._rest_ms = 0
        self._sending: set[asyncio.Task[bool]] = set()

    def __len__(self) -> int:
        """How many nodes have a stream."""
        return len(self._streams)

    def speaks(self, node: str) -> bool:
        """Whether a node's agent could be asked now."""
        stream = self._streams.get(node)
        return stream is not None and self._clock() - stream.heard_at < _SILENT_S

    async def serve(self, connection: "ServerConnection", admitted: Admitted) -> None:
        """Take in what an agent sends until it leaves, a newer stream replaces it, or its token expires."""
        older = self._streams.get(admitted.node)
        if older is None and len(self._streams) >= self._most_nodes:
            await connection.close(_TOO_MANY, "as many nodes as may have streams have one")
            return
        stream = self._streams[admitted.node] = _Stream(admitted.node, connection)
        stream.log.info("agent.connected", replaces=older is not None)
        self._pace(stream)
        try:
            async with asyncio.TaskGroup() as tasks:
                if older is not None:
                    tasks.create_task(older.connection.close(_REPLACED, "a newer stream of this node is up"))
                tasks.create_task(self._read(stream, until=admitted.until))
        finally:
            if self._streams.get(admitted.node) is stream:
                del self._streams[admitted.node]
            stream.end()
            stream.log.info("agent.left")

    async def look(self, node: str, gpus: Collection[str], *, within_s: float) -> Looked:
        """Have a node's agent look at cards now; what it sees counts before this returns.

        An agent has one look of ours at a time to answer: who asks meanwhile shares the next one.
        """
        stream, started = self._streams.get(node), time.perf_counter()
        if stream is None:
            return Looked(took_s=0.0, missing=tuple(gpus), problem="no stream of the node's agent")
        glance = stream.join(gpus)
        if stream.looking is None:
            stream.looking = asyncio.create_task(self._look_around(stream, within_s))
        problem = f"no answer within {within_s * 1000:.0f} ms"
        seen: frozenset[str] | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                seen = await asyncio.shield(glance.answer)
                problem = "the stream of the node's agent ended"
        took_s = time.perf_counter() - started
        if seen is None:
            return Looked(took_s=took_s, missing=tuple(gpus), problem=problem)
        missing = tuple(uuid for uuid in gpus if uuid not in seen)
        problem = f"the agent could not read {', '.join(missing)}" if missing else ""
        return Looked(took_s=took_s, missing=missing, problem=problem)

    async def _look_around(self, stream: _Stream, within_s: float) -> None:
        """Send looks one after the other, as long as somebody waits for one."""
        try:
            while (glance := stream.take_glance()) is not None:
                number = next(self._numbers)
                stream.looks[number] = glance
                glance.sent_at = self._clock()
                request = LookRequest(id=number, gpus=tuple(sorted(glance.gpus)))
                try:
                    async with asyncio.timeout(within_s):
                        await stream.connection.send(encode_frame(request))
                        await asyncio.wait([glance.answer])
                except (TimeoutError, _closed()):
                    glance.end()
                finally:
                    stream.looks.pop(number, None)
        finally:
            stream.looking = None

    def _pace(self, newcomer: _Stream) -> None:
        """Let agents send what is not new less often, where there are so many that it would cost too much."""
        nodes = len(self._streams)
        rest_s = nodes / self._most_samples_s if nodes > self._most_samples_s else 0.0
        rest_ms = int(min(rest_s, 0.6 * self._sightings.stream_max_age_s) * 2) * 500
        told = [newcomer] if rest_ms == self._rest_ms else list(self._streams.values())
        if rest_ms or self._rest_ms:
            for stream in told:
                sending = asyncio.create_task(_send(stream, Rest(ms=rest_ms)))
                self._sending.add(sending)
                sending.add_done_callback(self._sending.discard)
        self._rest_ms = rest_ms

    async def _read(self, stream: _Stream, *, until: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, until - self._clock())):
                async for message in stream.connection:
                    if not self._take(stream, message) and stream.is_too_much(self._clock(), len(message)):
                        await stream.connection.close(_TOO_MUCH, "too many frames, or too large ones")
                        return
        except TimeoutError:
            await stream.connection.close(_EXPIRED, "the token expires; come again with a new one")
        except _closed():
            pass

    def _take(self, stream: _Stream, message: str | bytes) -> bool:
        """Take in a frame; whether it is one that was asked for."""
        if self._streams.get(stream.node) is not stream:
            return False  # a newer stream speaks for the node; this one is being closed
        if isinstance(message, bytes):
            stream.complain("agent.unreadable", problem="a frame is binary, not JSON as text")
            return False
        try:
            frame = decode_agent_frame(message, subject=f"agent of node {stream.node}")
            seen = self._observe(stream, frame)
        except RequestError as error:
            stream.complain("agent.unreadable", problem=str(error))
            return False
        stream.heard_at = self._clock()
        glance = stream.looks.get(frame.id) if isinstance(frame, LookAnswer) else None
        if glance is None or glance.answer.done():
            return False
        # Who answers with what he saw before he was asked has not looked.
        is_new = frame.age_ms / 1000 <= stream.heard_at - glance.sent_at + _ROUNDING_S
        glance.answer.set_result(seen if is_new else frozenset())
        return True

    def _observe(self, stream: _Stream, frame: AgentFrame) -> frozenset[str]:
        """Take in a frame's cards; return the UUIDs of those whose use was told."""
        received_at, told = self._clock(), frame.status.observed_at
        at = stream.clock.date(
            received_at=received_at,
            age_s=frame.age_ms / 1000,
            told=None if told is None else seconds_of(told),
        )
        sample = report_in(frame, node=stream.node, received_at=received_at)
        sample = msgspec.structs.replace(sample, observed_at=at)
        is_look = isinstance(frame, LookAnswer)
        source = ObservationSource.LOOK if is_look else ObservationSource.STREAM
        strangers = self._sightings.take_sample(sample, source)
        if strangers:
            stream.complain("agent.strangers", gpus=strangers)
        return frozenset(gpu.uuid for gpu in sample.gpus or () if gpu.uuid and gpu.used_mib is not None)


async def _send(stream: _Stream, frame: Rest) -> bool:
    """Send something that needs no answer; False: it could not be sent."""
    try:
        async with asyncio.timeout(_SEND_S):
            await stream.connection.send(encode_frame(frame))
    except (TimeoutError, _closed()):
        return False
    return True


def _closed() -> type[Exception]:
    """Return what a connection raises once it is closed."""
    from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 — loaded by whoever accepted it

    return ConnectionClosed
