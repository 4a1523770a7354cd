"""Short ways to reserve memory at a replica."""

import asyncio

from scheduler.replicas import Replica
from vramline.scheduler.reservations import NoRoom, NotDone, Reservations, Reserved, read_wish

__all__ = ["OTHER", "TOKEN", "desk_of", "reserve"]

TOKEN = "0123456789abcdef" * 2
OTHER = "fedcba9876543210" * 2


def desk_of(replica: Replica) -> Reservations:
    return Reservations(replica.live, replica.committer, leader=lambda: "vramline-7_4711")


def reserve(
    replica: Replica, mib: int = 20_000, *, token: str = TOKEN, name: str = "p1", ttl: int = 600
) -> Reserved | NoRoom | NotDone:
    wish = read_wish(
        {
            "owner": {"namespace": "ns", "name": name},
            "ask": {"mib": mib},
            "ttlSeconds": ttl,
            "token": token,
        }
    )
    return asyncio.run(desk_of(replica).reserve(wish))
