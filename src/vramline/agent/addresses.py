"""Where the scheduler's replicas are: every address behind every name that was given."""

import asyncio
import socket

import msgspec
import structlog

from vramline.settings import Address

__all__ = ["Replica", "Replicas", "find_replicas"]


class Replica(msgspec.Struct, frozen=True):
    """One process to stream to."""

    address: str
    named: Address
    """What it was found by; its certificate must carry that name or number."""

    def __str__(self) -> str:
        return str(Address(self.address, self.named.port))


class Replicas(msgspec.Struct, frozen=True):
    """What a look-up brought."""

    found: frozenset[Replica]
    complete: bool
    """False: a name could not be looked up, so that whoever is missing is not known to be gone."""


async def find_replicas(given: tuple[Address, ...]) -> Replicas:
    """Look up every name."""
    loop = asyncio.get_running_loop()
    found: set[Replica] = set()
    complete = True
    for each in given:
        try:
            answers = await loop.getaddrinfo(each.host, each.port, type=socket.SOCK_STREAM)
        except OSError as error:
            structlog.get_logger().warning("schedulers.unknown", host=each.host, error=str(error))
            complete = False
            continue
        for *_, place in answers:
            found.add(Replica(str(place[0]), each))
    return Replicas(frozenset(found), complete)
