"""A port for a server that is yet to start, which nobody takes in the meantime."""

import functools
import itertools
import os
import socket
from collections.abc import Iterator

__all__ = ["free_port"]

_HOST = "127.0.0.1"
_PORTS = range(10_240, 32_768)
"""Below those that Linux gives to outgoing connections: one of these cannot be anybody's by chance."""
_EACH = 512
"""How far processes with neighbouring ids begin from each other: tests run in several at once."""


def free_port() -> int:
    """Return a loopback port that nobody listens on, and that this process was not given before."""
    for port in itertools.islice(_candidates(), len(_PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server will, after another
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
            return port
    raise OSError(f"no port of {_HOST} is free between {_PORTS.start} and {_PORTS.stop}")


@functools.cache
def _candidates() -> Iterator[int]:
    """Every port in turn, for ever; one series for the whole process."""
    first = os.getpid() * _EACH % len(_PORTS)
    return itertools.cycle([*_PORTS[first:], *_PORTS[:first]])
