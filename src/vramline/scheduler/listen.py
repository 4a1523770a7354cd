"""Where the scheduler may listen. Nobody is asked who they are, so only this machine may connect."""

import errno
import ipaddress
import socket

from vramline.errors import RequestError, TransientError
from vramline.settings import Address

__all__ = ["open_socket"]

_BACKLOG = 128


def open_socket(address: Address) -> socket.socket:
    """Return a listening socket on a loopback address; port 0 takes any free one.

    Raises `RequestError` for another address, `TransientError` where somebody else has the port.
    """
    family = _loopback_family(address)
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise TransientError(
                f"port {address.port} of {address.host} is in use by another program;"
                f" stop it, or choose another port with --listen {address.host}:{address.port + 1}"
            ) from None
        raise RequestError(
            subject="listen", value=str(address), problem=f"cannot listen there: {error.strerror}"
        ) from None
    return listener


def _loopback_family(address: Address) -> socket.AddressFamily:
    host = "127.0.0.1" if address.host == "localhost" else address.host
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        parsed = None
    if parsed is None or not parsed.is_loopback:
        raise RequestError(
            subject="listen",
            value=str(address),
            problem="is not a loopback address; callers are not authenticated, so nobody else may connect",
            accepted="127.0.0.1:8780, [::1]:8780 or localhost:8780",
        )
    return socket.AF_INET6 if parsed.version == 6 else socket.AF_INET
