import socket
from collections.abc import Callable

import pytest

from vramline.errors import RequestError, TransientError
from vramline.scheduler.listen import open_socket, open_webhook_socket
from vramline.settings import Address


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost"])
def test_loopback_is_listened_on(host: str) -> None:
    with open_socket(Address(host, 0)) as listener:
        assert listener.getsockname()[1] > 0


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::", "example.com", "192.168.1.1"])  # noqa: S104 — must be refused
def test_nothing_but_loopback_is_listened_on(host: str) -> None:
    with pytest.raises(RequestError, match="is not a loopback address"):
        open_socket(Address(host, 0))


def test_a_port_in_use_is_named_with_the_flag_that_changes_it() -> None:
    with open_socket(Address("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(TransientError, match=rf"port {port} .* --listen"):
            open_socket(Address("127.0.0.1", port))


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])  # noqa: S104 — the webhook is called by the API server
def test_the_webhook_may_be_called_from_elsewhere(host: str) -> None:
    with open_webhook_socket(Address(host, 0)) as listener:
        assert listener.getsockname()[0] == host


def test_the_webhook_listens_on_an_address_and_not_on_a_name() -> None:
    with pytest.raises(RequestError, match="is not an address of a network interface"):
        open_webhook_socket(Address("example.com", 0))


@pytest.mark.parametrize("listen", [open_socket, open_webhook_socket])
def test_answers_are_sent_without_waiting(listen: Callable[[Address], socket.socket]) -> None:
    with listen(Address("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
