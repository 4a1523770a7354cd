"""Reservation pods are made and ended here, one at a time on each node."""

import asyncio
from collections.abc import Callable

import structlog

from vramline.binder.cover import Situation, next_ordinal
from vramline.binder.holds import Holds
from vramline.binder.store import BinderStore, Failed, Taken
from vramline.model.node import Node
from vramline.wire import keys
from vramline.wire.platform_profile import PlatformProfile
from vramline.wire.reservation_pod import (
    Reservation,
    ReservationOptions,
    ReservationSite,
    build_reservation_pod,
    name_reservation,
)

__all__ = ["Maker"]


class Maker:
    """Makes and ends reservation pods. What it wrote is known at once, before any watch tells."""

    def __init__(
        self,
        store: BinderStore,
        holds: Holds,
        options: ReservationOptions,
        profile_of: Callable[[Node], PlatformProfile],
    ) -> None:
        self._store = store
        self._holds = holds
        self._options = options
        self._profile_of = profile_of
        self._locks: dict[str, asyncio.Lock] = {}
        self._log = structlog.get_logger()

    def lock(self, node: str) -> asyncio.Lock:
        """Who looks at the reservations of a node and makes one according to it must be alone there."""
        return self._locks.setdefault(node, asyncio.Lock())

    async def make(self, situation: Situation, card: str) -> str:
        """Make the next reservation for a card, or find somebody else's; return what went wrong."""
        node = situation.node
        ordinal = next_ordinal(situation, card)
        resource = keys.GPU_COUNT_SHARED if node.renamed else keys.GPU_COUNT
        site = ReservationSite(
            node=node.name, card=card, ordinal=ordinal, taints=node.taints, resource=resource
        )
        manifest = build_reservation_pod(site, self._profile_of(node), self._options)
        answer = await self._store.make_pod(self._options.namespace, manifest)
        name = name_reservation(node.name, card, ordinal)
        if isinstance(answer, Taken | Failed):  # somebody else made it, or the answer was lost
            there = await self._store.read_pod(self._options.namespace, name)
            if there is None or isinstance(there, Failed):
                return f"reservation pod {name} was not made: {answer.detail}"
            answer = there
        self._holds.take(answer)
        self._log.info("reservation.made", node=node.name, card=card, pod=name)
        return ""

    async def end(self, reservation: Reservation, *, now: bool = False) -> None:
        """End a reservation; it is no longer relied upon from this moment."""
        self._holds.mark_ending(reservation.uid)
        problem = await self._store.end_pod(self._options.namespace, reservation, now=now)
        if problem is not None:
            self._holds.unmark(reservation.uid)
            self._log.warning("reservation.stays", pod=reservation.name, problem=problem.detail)
            return
        held = reservation.card or reservation.planned
        self._log.info("reservation.ended", node=reservation.node, card=held, pod=reservation.name)
