"""Where the scheduler's replicas are: every address behind every name that was given."""

import asyncio
import socket

import msgspec
import structlog

from vramline.settings import Address

__all__ = ["Replica", "find_replicas"]


class Replica(msgspec.Struct, frozen=True):
    """One process to stream to."""

    address: str
    named: Address
    """What it was found by; its certificate must carry that name or number."""

    def __str__(self) -> str:
        return str(Address(self.address, self.named.port))


async def find_replicas(given: tuple[Address, ...]) -> tuple[Replica, ...] | None:
    """Look up every name; None: one of them cannot be looked up now, so that nothing is known to be gone."""
    loop = asyncio.get_running_loop()
    found: dict[Replica, None] = {}
    complete = True
    for each in given:
        try:
            answers = await loop.getaddrinfo(each.host, each.port, type=socket.SOCK_STREAM)
        except OSError as error:
            structlog.get_logger().warning("schedulers.unknown", host=each.host, error=str(error))
            complete = False
            continue
        for *_, place in answers:
            found[Replica(str(place[0]), each)] = None
    return tuple(found) if complete or found else None
