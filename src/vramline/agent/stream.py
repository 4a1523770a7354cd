"""Streams to the scheduler: every sample to every replica, and an answer to every look.

One WebSocket over TLS a replica, opened by the agent. Token and trusted authority are read again for every
connection, because both are replaced while the agent runs. A reader that is slower than the samples gets the
newest one when it is ready, never a queue of old ones.
"""

import asyncio
import contextlib
import random
import ssl
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.frames import CloseCode

from vramline.agent.addresses import Replica, Replicas
from vramline.agent.changes import is_news
from vramline.errors import RequestError, TransientError
from vramline.kube.pace import Pace, delay_s
from vramline.units import Mib
from vramline.wire.agent_stream_v1 import (
    MAX_FRAME_BYTES,
    PATH,
    LookAnswer,
    LookRequest,
    Rest,
    Sample,
    decode_scheduler_frame,
    encode_frame,
)
from vramline.wire.report_v1alpha1 import GpuReport, ReportStatus, status_of

__all__ = ["Hooks", "StreamRules", "Streams", "Taken"]

_MOST_LOOKS = 8
"""Looks of one replica under way at once; more are not answered, and the asker goes by the last sample."""


class StreamRules(msgspec.Struct, frozen=True, kw_only=True):
    """How streams are opened."""

    token_file: Path
    ca_file: Path
    open_s: float = 10.0
    look_up_s: float = 10.0
    """How often the replicas' addresses are looked up again."""
    steady_s: float = 10.0
    """A stream that held so long ends a row of failures."""
    pace: Pace = Pace(first_s=0.5, most_s=15.0)


class Taken(msgspec.Struct, frozen=True):
    """A report, and when its reading was begun, by the agent's clock."""

    report: GpuReport
    at: float


@dataclass(frozen=True, slots=True)
class Hooks:
    """What streams need of the agent."""

    find_replicas: Callable[[], Awaitable[Replicas]]
    look: Callable[[tuple[str, ...]], Awaitable[Taken]]


@dataclass(slots=True)
class Streams:
    """All streams of this agent."""

    rules: StreamRules
    hooks: Hooks
    clock: Callable[[], float]
    rng: random.Random
    looks: int = 0
    """Looks that were answered."""
    failures: int = 0
    """Streams that could not be opened, or broke."""
    _up: set[Replica] = field(default_factory=set)
    _newest: Taken | None = None
    _links: dict[Replica, "asyncio.Task[None]"] = field(default_factory=dict)
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def up(self) -> int:
        """How many replicas are listening now."""
        return len(self._up)

    async def offer(self, sample: Taken) -> None:
        """Take the newest sample; who has not sent the one before skips it."""
        self._newest = sample
        async with self._arrived:
            self._arrived.notify_all()

    async def run(self) -> None:
        """Keep a stream to every replica, for ever."""
        try:
            while True:
                replicas = await self.hooks.find_replicas()
                known = set() if replicas.complete else set(self._links)
                self._keep_only(replicas.found | known)
                await asyncio.sleep(self.rules.look_up_s)
        finally:
            links = list(self._links.values())
            self._keep_only(set())
            await asyncio.gather(*links, return_exceptions=True)

    def _keep_only(self, replicas: AbstractSet[Replica]) -> None:
        for gone in self._links.keys() - replicas:
            self._links.pop(gone).cancel()
        for new in replicas - self._links.keys():
            self._links[new] = asyncio.create_task(self._hold(new), name=f"stream {new}")

    async def _hold(self, replica: Replica) -> None:
        """Open a stream again and again, with growing waits between failures."""
        log = structlog.get_logger().bind(scheduler=str(replica))
        failures = 0
        while True:
            started = self.clock()
            try:
                await self._stream(replica)
                problem = "closed"
            except (OSError, TransientError, RequestError, WebSocketException) as error:
                problem = _explain(error)
            finally:
                self._up.discard(replica)
            self.failures += 1
            failures = 1 if self.clock() - started >= self.rules.steady_s else failures + 1
            wait_s = delay_s(self.rules.pace, failures, self.rng)
            log.warning("stream.lost", error=problem, retry_in_s=round(wait_s, 1))
            await asyncio.sleep(wait_s)

    async def _stream(self, replica: Replica) -> None:
        async with connect(
            f"wss://{replica.named}{PATH}",
            host=replica.address,
            port=replica.named.port,
            ssl=_trust(self.rules.ca_file),
            server_hostname=replica.named.host,
            additional_headers={"Authorization": f"Bearer {_read_token(self.rules.token_file)}"},
            open_timeout=self.rules.open_s,
            close_timeout=1.0,
            max_size=MAX_FRAME_BYTES,
            compression=None,
            proxy=None,
        ) as socket:
            self._up.add(replica)
            structlog.get_logger().info("stream.opened", scheduler=str(replica))
            rest = _Resting()
            sending = asyncio.create_task(self._send_samples(socket, rest))
            try:
                await self._receive(socket, rest)
            except asyncio.CancelledError:
                await socket.close(CloseCode.GOING_AWAY)
                raise
            finally:
                sending.cancel()

    async def _send_samples(self, socket: ClientConnection, rest: "_Resting") -> None:
        seen: Taken | None = None
        while True:
            async with self._arrived:
                while self._newest is None or self._newest is seen:
                    await self._arrived.wait()
            seen = sent = self._newest
            if rest.may_wait(sent, self.clock()):
                continue
            try:
                await socket.send(self._frame(sent))
            except ConnectionClosed:  # whoever reads the stream says so
                return

    def _frame(self, taken: Taken) -> str:
        """Write a sample; one that would be too large goes without its processes."""
        frame = Sample(age_ms=self._age_ms(taken), status=status_of(taken.report))
        text = encode_frame(frame)
        if len(text.encode()) > MAX_FRAME_BYTES:
            text = encode_frame(msgspec.structs.replace(frame, status=_without_processes(frame.status)))
        return text

    async def _receive(self, socket: ClientConnection, rest: "_Resting") -> None:
        answers: set[asyncio.Task[None]] = set()
        try:
            async for message in socket:
                text = message if isinstance(message, str) else message.decode(errors="replace")
                match decode_scheduler_frame(text):
                    case Rest(ms=ms):
                        rest.least_s = ms / 1000
                    case LookRequest() as request if len(answers) < _MOST_LOOKS:
                        task = asyncio.create_task(self._answer(socket, request))
                        answers.add(task)
                        task.add_done_callback(answers.discard)
        finally:
            for task in answers:
                task.cancel()

    async def _answer(self, socket: ClientConnection, request: LookRequest) -> None:
        taken = await self.hooks.look(request.gpus)
        answer = LookAnswer(id=request.id, age_ms=self._age_ms(taken), status=status_of(taken.report))
        self.looks += 1
        with contextlib.suppress(ConnectionClosed):  # whoever reads the stream says so
            await socket.send(encode_frame(answer))

    def _age_ms(self, taken: Taken) -> int:
        """Round up: a sample may look older than it is, never younger."""
        return max(0, -int(-(self.clock() - taken.at) * 1000 // 1))


@dataclass(slots=True)
class _Resting:
    """How often one replica wants to hear the same again; what is new it hears at once."""

    least_s: float = 0.0
    _sent: Taken | None = None
    _sent_at: float = 0.0

    def may_wait(self, sample: Taken, now: float) -> bool:
        """Whether a sample need not be sent; one that is not kept back counts as sent."""
        before = None if self._sent is None else self._sent.report
        is_due = now - self._sent_at >= self.least_s
        if not is_due and not is_news(before, sample.report, threshold=Mib(1)):
            return True
        self._sent, self._sent_at = sample, now
        return False


def _without_processes(status: ReportStatus) -> ReportStatus:
    cards = [msgspec.structs.replace(gpu, processes=None) for gpu in status.gpus or ()]
    return msgspec.structs.replace(status, gpus=tuple(cards))


def _trust(ca_file: Path) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=ca_file.read_text())
    except (OSError, ValueError) as error:
        raise TransientError(f"the schedulers' authority in {ca_file} cannot be used: {error}") from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _read_token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except (OSError, ValueError) as error:
        raise TransientError(f"the token in {path} cannot be read: {error}") from error
    if not token or not token.isascii() or not token.isprintable():
        raise TransientError(f"{path} holds no token")
    return token


def _explain(error: BaseException) -> str:
    if isinstance(error, InvalidStatus):
        body = (error.response.body or b"").decode(errors="replace")
        said = " ".join(body.split())[:200]
        return f"refused with {error.response.status_code}{f': {said}' if said else ''}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
