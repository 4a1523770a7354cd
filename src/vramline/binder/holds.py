"""The reservation pods that are there, as the watch and our own writes tell them."""

import asyncio
import contextlib
from collections import deque

import msgspec

from vramline.wire.kubernetes import PodObject
from vramline.wire.reservation_pod import Reservation, read_reservation

__all__ = ["Holds"]

_REMEMBERED = 1_000
"""How many that are gone are remembered, should the answer to our own write come after the watch's word."""


class Holds:
    """Reservation pods of one namespace, by node. Whoever waits for a change is woken by every change."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._by_uid: dict[str, Reservation] = {}
        self._ending: set[str] = set()
        self._gone: deque[str] = deque(maxlen=_REMEMBERED)
        self.touched: set[str] = set()
        """Nodes whose reservations changed; whoever looks after them takes them out."""
        self._changed = asyncio.Event()

    def nodes(self) -> set[str]:
        """Return the nodes that have any."""
        return {each.node for each in self._by_uid.values()}

    def on(self, node: str) -> tuple[Reservation, ...]:
        """Return the reservation pods of a node."""
        return tuple(self._as_it_is(each) for each in self._by_uid.values() if each.node == node)

    def take(self, pod: PodObject) -> None:
        """A pod was created or changed; others than reservation pods are not noted."""
        read = read_reservation(pod) if pod.metadata.namespace == self.namespace else None
        if read is None or read.uid in self._gone:
            return
        known = self._by_uid.get(read.uid)
        if known is not None and int(known.version or 0) >= int(read.version or 0):
            return  # a watch that lags behind our own writes
        self._by_uid[read.uid] = read
        if known is None or _says(known) != _says(read):
            self.touched.add(read.node)
            self.wake()

    def drop(self, uid: str) -> None:
        """A pod is gone."""
        gone = self._by_uid.pop(uid, None)
        if gone is not None:
            self.touched.add(gone.node)
            self._ending.discard(uid)
            self._gone.append(uid)
            self.wake()

    def mark_ending(self, uid: str) -> None:
        """Its end was decided: from now on nobody relies on it."""
        self._ending.add(uid)

    def unmark(self, uid: str) -> None:
        """Its end could not be written after all."""
        self._ending.discard(uid)

    def wake(self) -> None:
        """Have everybody look again who waits for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def change(self, within_s: float) -> None:
        """Return at the next change, or when the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, within_s)):
                await self._changed.wait()

    def _as_it_is(self, each: Reservation) -> Reservation:
        return msgspec.structs.replace(each, ending=True) if each.uid in self._ending else each


def _says(each: Reservation) -> tuple[str, str, bool]:
    return each.card, each.failure, each.ending
