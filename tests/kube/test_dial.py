"""A connection that is given up while it is made leaves nothing behind, whenever that happens."""

import asyncio
import contextlib
import datetime as dt
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest

from open_sockets import sockets_to
from vramline.kube.certificates import TlsIdentity, renew_identity
from vramline.kube.http import Address, Connection, NotSentError, dial


@pytest.fixture(scope="module")
def identity() -> TlsIdentity:
    return renew_identity(None, names=("127.0.0.1",), now=dt.datetime.now(dt.UTC))


@pytest.fixture(scope="module")
def port(identity: TlsIdentity, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server that shakes hands with everyone, and never closes a connection by itself."""
    pem = tmp_path_factory.mktemp("dial") / "server.pem"
    pem.write_bytes(identity.certificate + identity.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as guests:
        thread = threading.Thread(target=_greet_everyone, args=(listener, context, guests))
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def _greet_everyone(listener: socket.socket, context: ssl.SSLContext, guests: contextlib.ExitStack) -> None:
    while True:
        try:
            visitor, _ = listener.accept()
        except OSError:
            return
        with contextlib.suppress(OSError), visitor:
            guests.enter_context(context.wrap_socket(visitor, server_side=True))


@pytest.mark.parametrize("step", ["at once", "connected", "before a handshake", "after a handshake"])
def test_a_dial_that_is_cancelled_at_any_step_leaves_no_socket(
    step: str, identity: TlsIdentity, port: int
) -> None:
    dialling: list[asyncio.Task[Connection]] = []

    class Told(ssl.SSLObject):
        def do_handshake(self) -> None:
            if step == "before a handshake":
                dialling[0].cancel()
            super().do_handshake()
            if step == "after a handshake":
                dialling[0].cancel()

    trust = ssl.create_default_context(cadata=identity.trusted.decode())
    trust.sslobject_class = Told

    async def give_up() -> None:
        dialling.append(asyncio.create_task(dial(Address("127.0.0.1", port), trust, timeout_s=10.0)))
        for _ in range({"at once": 1, "connected": 3}.get(step, 0)):
            await asyncio.sleep(0)
        if step in {"at once", "connected"}:
            dialling[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialling[0]

    asyncio.run(give_up())

    assert sockets_to(port) == 0


def test_a_dial_that_takes_too_long_leaves_no_socket(identity: TlsIdentity) -> None:
    trust = ssl.create_default_context(cadata=identity.trusted.decode())
    with socket.create_server(("127.0.0.1", 0)) as listener:  # connects, and does not say a word
        port = listener.getsockname()[1]
        with pytest.raises(NotSentError, match=r"within 0\.05 s"):
            asyncio.run(dial(Address("127.0.0.1", port), trust, timeout_s=0.05))
        assert sockets_to(port) == 0
