"""Where the agent may listen: anywhere, because it shows figures and takes nothing."""

import errno
import ipaddress
import socket

from vramline.errors import RequestError, TransientError
from vramline.settings import Address

__all__ = ["open_metrics_socket"]

_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}


def open_metrics_socket(address: Address) -> socket.socket:
    """Return a listening socket; port 0 takes any free one.

    Raises `RequestError` for what is no address of this machine, `TransientError` where the port is taken.
    """
    try:
        family = _FAMILIES[ipaddress.ip_address(address.host).version]
    except ValueError:
        raise _mistake(address, "is not an address of a network interface") from None
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
        listener.listen(16)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise TransientError(
                f"port {address.port} of {address.host} is in use by another program;"
                f" stop it, or choose another port with --metrics-listen {address.host}:{address.port + 1}"
            ) from None
        raise _mistake(address, f"cannot listen there: {error.strerror}") from None
    return listener


def _mistake(address: Address, problem: str) -> RequestError:
    return RequestError(
        subject="metrics listen",
        value=str(address),
        problem=problem,
        accepted="an IP address and a port, such as 127.0.0.1:8781 or 0.0.0.0:8781",
    )
