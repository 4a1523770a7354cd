"""The proxy itself: one thread, one event loop, one connection to the API server for each one of a client."""

import asyncio
import contextlib
import json
import ssl
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

from controlplane.plane import ControlPlane
from faultproxy.faults import (
    Asked,
    At,
    Cut,
    Delay,
    EditLines,
    EditWatch,
    Fault,
    Hold,
    Moment,
    Refuse,
    Rule,
    StaleAnswer,
    SwallowAnswer,
)

__all__ = ["FaultProxy", "fault_proxy"]

_LIMIT = 16 << 20
_HANDSHAKE_S = 2.0
"""How long a handshake may take once the proxy is told to stop."""
_LOST = (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError)


class FaultProxy:
    """Stands in for the API server of a plane. Clients come with a certificate of the plane's authority."""

    def __init__(self, plane: ControlPlane, user: str) -> None:
        self.asked: list[Asked] = []
        """Every request that came by, in order."""
        self.url = ""
        self.kubeconfig = plane.folder / f"proxy-{id(self)}.kubeconfig"
        self._plane = plane
        self._user = user
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._oldest: dict[tuple[str, str], bytes] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    # ── commands, from any thread ────────────────────────────────────────────────────────────────────
    def add(self, fault: Fault, *, method: str = "", path: str = "", query: str = "", times: int = 1) -> None:
        """Arm a fault for the next `times` requests that match; earlier faults come first."""
        with self._lock:
            self._rules.append(Rule(fault, method, path, query, times))

    def clear(self) -> None:
        """Disarm all faults."""
        with self._lock:
            self._rules.clear()

    def cut_all(self) -> None:
        """Drop every connection at once."""
        self._call(self._cut_all())

    def count(self, method: str, path: str = "") -> int:
        """How many requests of a method came by whose path contains a text."""
        return sum(asked.method == method and path in asked.path for asked in list(self.asked))

    def start(self) -> None:
        """Listen, and write a kubeconfig that leads here."""
        self._thread.start()
        self._call(self._listen())
        config = json.loads((self._plane.folder / f"{self._user}.kubeconfig").read_text())
        config["clusters"][0]["cluster"]["server"] = self.url
        self.kubeconfig.write_text(json.dumps(config))

    def stop(self) -> None:
        """Drop everything and end the thread."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # ── inside the loop ──────────────────────────────────────────────────────────────────────────────
    def _call(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60.0)

    async def _listen(self) -> None:
        folder = self._plane.folder
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(folder / "apiserver.crt", folder / "apiserver.key")
        self._upstream = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        self._upstream.load_cert_chain(folder / f"{self._user}.crt", folder / f"{self._user}.key")
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=context, limit=_LIMIT)
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _cut_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _close(self) -> None:
        """Leave no socket behind, not even one whose handshake is under way (a task of asyncio's own)."""
        deadline = self._loop.time() + _HANDSHAKE_S
        told: set[asyncio.Task[Any]] = set()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await self._cut_all()
            for task in others if self._loop.time() > deadline else self._tasks - told:
                task.cancel()
                told.add(task)
            await asyncio.wait(others, timeout=0.05)
        self._server.close()  # not earlier: asyncio drops, unclosed, what it accepted just before
        await self._cut_all()  # a task that is cancelled before its first step has not dropped its client
        for _ in range(2):
            await asyncio.sleep(0)  # an aborted transport closes its socket in the next turn of the loop

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        task = self._loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until either side is gone."""
        back: asyncio.StreamWriter | None = None
        try:
            forth, back = await self._connect()
            self._writers.add(back)
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await _Exchange(self, head, (reader, writer), (forth, back)).carry_out()
        except _LOST:
            pass
        finally:
            for each in (writer, back):
                if each is not None:
                    self._writers.discard(each)
                    each.transport.abort()

    async def _connect(self) -> "Pipe":
        """Connect to the API server; cancelled, end that first: asyncio loses the socket of a handshake."""
        connecting = self._loop.create_task(
            asyncio.open_connection("127.0.0.1", self._plane.port, ssl=self._upstream, limit=_LIMIT)
        )
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            _, writer = await connecting
            writer.transport.abort()
            raise

    def pick(self, asked: Asked) -> Fault | None:
        """Note a request and return the fault that befalls it."""
        with self._lock:
            self.asked.append(asked)
            for rule in self._rules:
                if rule.matches(asked):
                    rule.times -= 1
                    return rule.fault
        return None

    def remember(self, asked: Asked, answer: bytes) -> None:
        """Keep the first answer to a question."""
        self._oldest.setdefault((asked.path, asked.query), answer)

    def oldest(self, asked: Asked) -> bytes:
        """Return the first answer to a question; empty: it was never answered."""
        return self._oldest.get((asked.path, asked.query), b"")


Pipe = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Exchange:
    """One request and its answer."""

    def __init__(self, proxy: FaultProxy, head: bytes, client: Pipe, server: Pipe) -> None:
        self._proxy = proxy
        self._head = head
        self._client = client
        self._server = server
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        path, _, query = target.partition("?")
        self._asked = Asked(method, path, query)

    async def carry_out(self) -> None:
        asked = self._asked
        length = int(_header(self._head, b"content-length") or 0)
        asked.body = await self._client[0].readexactly(length)
        fault = self._proxy.pick(asked)
        match fault:
            case Cut():
                raise ConnectionAbortedError
            case Refuse():
                await self._answer(fault.code, _refusal(fault))
            case StaleAnswer() if self._proxy.oldest(asked):
                await self._answer(200, self._proxy.oldest(asked))
            case _:
                await _wait_for(fault)
                self._act(fault, Moment.BEFORE)
                await self._forward(fault)
                self._act(fault, Moment.ANSWERED)

    def _act(self, fault: Fault | None, moment: Moment) -> None:
        """Do what is to be done at this moment; the request gets no further."""
        if isinstance(fault, At) and fault.moment is moment:
            fault.act()
            raise ConnectionAbortedError

    async def _forward(self, fault: Fault | None) -> None:
        reader, writer = self._server
        writer.write(self._head + self._asked.body)
        head = await reader.readuntil(b"\r\n\r\n")
        self._asked.code = int(head.split(b" ", 2)[1])
        self._act(fault, Moment.COMMITTED)
        if self._asked.is_watch and self._asked.code == 200:
            await self._pass_lines(
                head, fault.make() if isinstance(fault, EditWatch) else lambda line: [line]
            )
            return
        body = b"".join([piece async for piece in _pieces(reader, head)])
        answer = _with_length(head, body)
        if self._asked.method == "GET" and self._asked.code == 200:
            self._proxy.remember(self._asked, answer)
        if isinstance(fault, SwallowAnswer):
            self._asked.code = 0
            if fault.hang:
                await self._client[0].read()  # until the client gives up
            raise ConnectionAbortedError
        await self._send(answer)

    async def _pass_lines(self, head: bytes, edit: EditLines) -> None:
        """Pass a watch on line by line; a line that the editor answers with None breaks off in its middle."""
        await self._send(head)
        rest = b""
        async for piece in _pieces(self._server[0], head):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                edited = edit(line + b"\n")
                if edited is None:
                    await self._send(_chunk(line[: len(line) // 2]))
                    raise ConnectionAbortedError
                for each in edited:
                    await self._send(_chunk(each))
        await self._send(b"0\r\n\r\n")

    async def _answer(self, code: int, answer: bytes) -> None:
        self._asked.code = code
        await self._send(answer)

    async def _send(self, data: bytes) -> None:
        self._client[1].write(data)
        await self._client[1].drain()


@contextlib.contextmanager
def fault_proxy(plane: ControlPlane, user: str = "admin") -> Iterator[FaultProxy]:
    """Run a proxy that is this user to the API server."""
    proxy = FaultProxy(plane, user)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
        Path(proxy.kubeconfig).unlink()


async def _wait_for(fault: Fault | None) -> None:
    if isinstance(fault, Delay):
        await asyncio.sleep(fault.seconds)
    if isinstance(fault, Hold):
        fault.arrived.set()
        await asyncio.to_thread(fault.let_go.wait)


def _header(head: bytes, name: bytes) -> bytes:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip()
    return b""


async def _pieces(reader: asyncio.StreamReader, head: bytes) -> AsyncIterator[bytes]:
    """Yield the body of an answer as it arrives."""
    if _header(head, b"transfer-encoding").lower() != b"chunked":
        yield await reader.readexactly(int(_header(head, b"content-length") or 0))
        return
    while size := int(await reader.readuntil(b"\r\n"), 16):
        yield (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _with_length(head: bytes, body: bytes) -> bytes:
    lines = [
        line
        for line in head.split(b"\r\n")[:-2]
        if not line.lower().startswith((b"transfer-encoding:", b"content-length:"))
    ]
    return b"\r\n".join([*lines, f"Content-Length: {len(body)}".encode(), b"", body])


def _refusal(fault: Refuse) -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": fault.code}
    body = json.dumps({**status, "reason": fault.reason, "message": "injected by a test"}).encode()
    after = "" if fault.retry_after is None else f"Retry-After: {fault.retry_after}\r\n"
    head = f"HTTP/1.1 {fault.code} Injected\r\nContent-Type: application/json\r\n{after}\r\n"
    return _with_length(head.encode(), body)
