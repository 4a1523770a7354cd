"""Certificates under a running server."""

import asyncio
import contextlib
import datetime as dt
import socket
import ssl
from collections.abc import AsyncIterator

import httpx
import pytest
import uvicorn

from vramline.errors import TransientError
from vramline.kube.certificates import Lifetimes, read_identity
from vramline.scheduler.tls import CertificateKeeper, LiveTls, configure_server
from vramline.scheduler.webhook import build_webhook_app
from vramline.wire.admission import AdmissionOptions

ROTATIONS = 20
ALWAYS_DUE = Lifetimes(
    authority_margin=dt.timedelta(days=400), server_margin=dt.timedelta(days=0), settle=dt.timedelta(0)
)


class MemoryStore:
    """A Secret and the API servers' trust, in memory."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.version = 0
        self.trusted: list[bytes] = []
        self.is_reachable = True

    async def read(self) -> tuple[dict[str, bytes], str]:
        if not self.is_reachable:
            raise TransientError("no answer")
        read = dict(self.data), str(self.version)
        await asyncio.sleep(0)
        return read

    async def write(self, data: dict[str, bytes], version: str) -> bool:
        if version != str(self.version):
            return False
        self.data, self.version = data, self.version + 1
        return True

    async def publish(self, trusted: bytes) -> None:
        if self.trusted[-1:] != [trusted]:
            self.trusted.append(trusted)


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def keeper(store: MemoryStore, tls: LiveTls, lifetimes: Lifetimes | None = None) -> CertificateKeeper:
    return CertificateKeeper(store, tls, names=("127.0.0.1",), clock=now, lifetimes=lifetimes)


class Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]  # noqa: ANN201 — a test has its own
        yield


@contextlib.asynccontextmanager
async def serving(tls: LiveTls) -> AsyncIterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    app = build_webhook_app(AdmissionOptions(), is_ready=lambda: True)
    server = Server(configure_server(app, tls))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    yield f"https://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    await task


def client_of(store: MemoryStore, url: str) -> httpx.AsyncClient:
    context = ssl.create_default_context(cadata=store.trusted[-1].decode())
    return httpx.AsyncClient(verify=context, base_url=url)


async def call_on_and_on(store: MemoryStore, url: str, calls: asyncio.Queue[bool]) -> None:
    """Call on a connection that stays, and each time on a new one, with what is trusted at the moment."""
    async with client_of(store, url) as staying:
        while True:
            async with client_of(store, url) as fresh:
                for client in (staying, fresh):
                    try:
                        calls.put_nowait((await client.get("/healthz")).is_success)
                    except httpx.TransportError:
                        calls.put_nowait(False)


def test_no_call_fails_while_authority_and_certificate_change_twenty_times() -> None:
    async def rotate() -> tuple[list[bool], MemoryStore, set[bytes]]:
        store, tls, calls = MemoryStore(), LiveTls(), asyncio.Queue[bool]()
        answered: list[bool] = []
        keep = keeper(store, tls, ALWAYS_DUE)
        await keep.check()
        served = {store.data["tls.crt"]}
        async with serving(tls) as url:
            caller = asyncio.create_task(call_on_and_on(store, url, calls))
            for _ in range(2 * ROTATIONS):  # a new authority, then a certificate signed by it
                await keep.check()
                served.add(store.data["tls.crt"])
                answered += [await calls.get() for _ in range(4)]
            caller.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await caller
        return answered, store, served

    calls, store, served = asyncio.run(rotate())

    assert len(served) == ROTATIONS + 1
    assert len(store.trusted) == ROTATIONS + 1
    assert len(calls) >= 8 * ROTATIONS
    assert all(calls), f"{calls.count(False)} of {len(calls)} calls failed"


def test_replicas_that_start_together_end_with_one_identity() -> None:
    async def start() -> tuple[list[object], bool]:
        store, first, second = MemoryStore(), LiveTls(), LiveTls()
        keepers = [keeper(store, first), keeper(store, second)]
        outcomes = await asyncio.gather(*(each.check() for each in keepers), return_exceptions=True)
        for each in keepers:
            await each.check()
        identity = read_identity(store.data)
        assert identity is not None
        return list(outcomes), first.serve(identity) or second.serve(identity)

    outcomes, is_other = asyncio.run(start())

    assert [type(each) for each in outcomes] == [type(None), TransientError]
    assert not is_other


def test_a_certificate_is_served_on_while_the_store_is_away() -> None:
    async def lose_the_store() -> int:
        store, tls = MemoryStore(), LiveTls()
        keep = keeper(store, tls)
        await keep.check()
        store.is_reachable = False
        async with serving(tls) as url, client_of(store, url) as client:
            running = asyncio.create_task(keep.run(retry_s=0))
            answer = await client.get("/healthz")
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
        return answer.status_code

    assert asyncio.run(lose_the_store()) == httpx.codes.OK


def test_a_certificate_that_cannot_be_loaded_does_not_spoil_the_one_in_use() -> None:
    async def spoil() -> int:
        store, tls = MemoryStore(), LiveTls()
        await keeper(store, tls).check()
        identity = read_identity(store.data)
        assert identity is not None
        broken = type(identity)(trusted=b"", signing_key=b"", certificate=b"junk", key=b"junk")
        with pytest.raises(ssl.SSLError):
            tls.serve(broken)
        async with serving(tls) as url, client_of(store, url) as client:
            return (await client.get("/healthz")).status_code

    assert asyncio.run(spoil()) == httpx.codes.OK


def test_there_is_nothing_to_serve_before_the_first_check() -> None:
    assert not LiveTls().is_ready
