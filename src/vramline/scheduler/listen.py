"""Where the scheduler may listen.

Nobody who calls extender or API is asked who they are, so only this machine may connect to them. The webhook,
which says nothing that a caller does not know, may be called from anywhere, over TLS; so may the listener
of the nodes' agents, which asks everybody for a token.
"""

import errno
import ipaddress
import socket

from vramline.errors import RequestError, TransientError
from vramline.settings import Address

__all__ = ["open_agent_socket", "open_dashboard_socket", "open_socket", "open_webhook_socket"]

_BACKLOG = 128
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}


def open_socket(address: Address) -> socket.socket:
    """Return a listening socket on a loopback address; port 0 takes any free one.

    Raises `RequestError` for another address, `TransientError` where somebody else has the port.
    """
    return _listen(_loopback_family(address), address, option="--listen")


def open_webhook_socket(address: Address) -> socket.socket:
    """Return a listening socket on any address of this machine, for TLS alone; raises as `open_socket`."""
    return _listen_anywhere(address, "webhook listen", option="--webhook-listen")


def open_agent_socket(address: Address) -> socket.socket:
    """Return the same for the streams of the nodes' agents."""
    return _listen_anywhere(address, "agent listen", option="--agent-listen")


def open_dashboard_socket(address: Address) -> socket.socket:
    """Return the same for people, who show a token."""
    return _listen_anywhere(address, "dashboard listen", option="--dashboard-listen")


def _listen_anywhere(address: Address, subject: str, *, option: str) -> socket.socket:
    try:
        version = ipaddress.ip_address(address.host).version
    except ValueError:
        raise RequestError(
            subject=subject,
            value=str(address),
            problem="is not an address of a network interface",
            accepted="an IP address and a port, such as 0.0.0.0:8443 or [::]:8443",
        ) from None
    return _listen(_FAMILIES[version], address, option=option)


def _listen(family: socket.AddressFamily, address: Address, *, option: str) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted sockets inherit it; else the second half of an answer waits 40 ms for the first one's ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((address.host, address.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise TransientError(
                f"port {address.port} of {address.host} is in use by another program;"
                f" stop it, or choose another port with {option} {address.host}:{address.port + 1}"
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
    return _FAMILIES[parsed.version]
