"""The sockets that this process has open, as the kernel lists them."""

import contextlib
from pathlib import Path

__all__ = ["sockets_at", "sockets_to"]


def sockets_at(port: int) -> int:
    """Count the open sockets of this process whose own end is a port."""
    return sum(local == port for local, _ in _ends())


def sockets_to(port: int) -> int:
    """Count the open sockets of this process that lead to a port."""
    return sum(remote == port for _, remote in _ends())


def _ends() -> list[tuple[int, int]]:
    """Local and remote port of every TCP socket of this process, over IPv4."""
    inodes = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed in the meantime
            inodes.add(str(link.readlink()))
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return [(_port(line[1]), _port(line[2])) for line in lines if f"socket:[{line[9]}]" in inodes]


def _port(end: str) -> int:
    return int(end.partition(":")[2], 16)
