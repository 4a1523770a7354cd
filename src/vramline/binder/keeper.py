"""What goes on besides binds: reservations end and are made anew, and unfinished binds are taken up.

Only the leader does anything, and nothing is ever done to a pod that uses a card: a reservation that was
lost under it is made again, and if kubelet has given the card to somebody else meanwhile, that is told.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from vramline.binder.binder import is_held_by_reservations, is_waiting
from vramline.binder.books import claimed_on, is_ours, situation_of
from vramline.binder.cover import Claimed, Upkeep, plan_upkeep
from vramline.binder.parts import Parts
from vramline.binder.store import Failed
from vramline.model.claim import Claim
from vramline.model.cluster import BindOutcome
from vramline.model.decision import Placement
from vramline.model.node import Node
from vramline.model.pod import Pod, PodPhase
from vramline.wire.bind_request_v1alpha1 import BindRequest
from vramline.wire.reservation_pod import Reservation

__all__ = ["Keeper", "LostCard", "Stranger"]

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_NODES_AT_ONCE = 250
_RECORDS_EVERY = 3
"""In every so many rounds records are completed; a round is a second or less."""
_RECORDS_AT_ONCE = 20
"""How many records of binds are completed in one round: thousands may lack one after an upgrade."""


@dataclass(frozen=True, slots=True)
class LostCard:
    """A card that pods use, and that kubelet has given to somebody else."""

    node: str
    card: str


@dataclass(frozen=True, slots=True)
class Stranger:
    """A pod to which kubelet gave devices and that Vramline did not place, and what it holds by the books."""

    node: str
    pod: str
    holds: tuple[tuple[str, int], ...]
    """Cards and MiB."""


@dataclass(frozen=True, slots=True)
class _Pause:
    until: float
    length_s: float


class Keeper:
    """Keeps reservations and requests in step with the claims."""

    def __init__(
        self,
        parts: Parts,
        *,
        epoch: Callable[[], int | None],
        bind: Callable[[str, str], Awaitable[BindOutcome]],
        tell: Callable[[LostCard | Stranger], None] = lambda _: None,
    ) -> None:
        self._books, self._holds, self._maker = parts.books, parts.holds, parts.maker
        self._requests, self._store, self._clock = parts.requests, parts.store, parts.clock
        self._epoch = epoch
        self._bind = bind
        self._tell = tell
        self._pauses: dict[str, _Pause] = {}
        self._last = ""
        self._rounds = 0
        self._resuming: dict[str, asyncio.Task[None]] = {}
        self._log = structlog.get_logger()

    async def round(self) -> None:
        """Do once whatever there is to do."""
        if self._epoch() is None:
            return
        await self.take_up()
        for name in self._next_nodes():
            if self._epoch() is not None:
                await self._keep(name)
        if self._rounds % _RECORDS_EVERY == 0:
            await self._complete_records()
        self._rounds += 1

    def _next_nodes(self) -> list[str]:
        """Return the nodes where something happened, and some of all others in turn: there may be many."""
        touched, self._holds.touched = self._holds.touched, set()
        every = sorted(self._holds.nodes() | self._nodes_with_claims())
        later = [name for name in every if name > self._last]
        turn = (later + every[: len(every) - len(later)])[:_NODES_AT_ONCE]
        self._last = turn[-1] if turn else ""
        return [*sorted(touched - set(turn)), *turn]

    async def take_up(self) -> None:
        """End or go on with every bind that was begun and is not under way here."""
        for request in self._requests.pending():
            pod = self._books.pods.get(request.pod_uid)
            if pod is None or self._books.is_held(pod.uid) or self._epoch() is None:
                continue  # the API server deletes what belonged to a pod that is gone
            if pod.node is not None:
                ours = pod.node == request.node and is_ours(pod)
                await self._requests.end(request, pod, "" if ours else f"{pod.key} is on {pod.node}")
                continue
            if pod.uid not in self._resuming:
                self._resuming[pod.uid] = asyncio.create_task(self._resume(request, pod))

    async def _resume(self, request: BindRequest, pod: Pod) -> None:
        """Go on with a bind: it may wait for kubelet, and others must not wait for it."""
        self._log.info("bind.resumed", pod=pod.key, node=request.node, attempts=request.attempts)
        try:
            outcome = await self._bind(pod.uid, request.node)
            now = self._books.pods.get(pod.uid)
            waits = now is not None and now.node is None and not self._books.is_held(pod.uid)
            if outcome.refused and waits and self._requests.is_pending(pod):
                await self._requests.end(request, pod, outcome.refused)
        finally:
            del self._resuming[pod.uid]

    async def _keep(self, name: str) -> None:
        """Make and end reservations of one node."""
        async with self._maker.lock(name):
            node = self._books.fleet.node(name)
            if node is None:
                for each in self._holds.on(name):
                    await self._end_forgotten(each)
                return
            if not is_held_by_reservations(node) and not self._holds.on(name):
                return
            situation = situation_of(self._books, self._holds, node)
            if situation.strangers:
                self._name_strangers(name)
            upkeep = plan_upkeep(situation, self._claimed_on(node))
            for each in upkeep.end:
                if each.failure or await self._is_over(each):
                    await self._maker.end(each)
            self._pause_or_forget(name, upkeep)
            if upkeep.make and self._may_try(name) and is_held_by_reservations(node):
                problem = await self._maker.make(situation, upkeep.make[0])
                if problem:
                    self._log.warning("reservation.unmade", node=name, problem=problem)

    def _name_strangers(self, name: str) -> None:
        """Say on the node whom kubelet gave devices without asking us; their memory is counted."""
        for pod in self._books.pods_on(name):
            if pod.holds_devices and not is_ours(pod) and pod.namespace != self._holds.namespace:
                claims = self._books.fleet.ledger.of_pod(pod.uid)
                self._tell(Stranger(name, pod.key, tuple((claim.gpu, claim.mib) for claim in claims)))

    async def _end_forgotten(self, reservation: Reservation) -> None:
        """End a reservation on a node that left: no kubelet is there to end it."""
        if not self._books.pods_on(reservation.node) and await self._is_over(reservation):
            await self._maker.end(reservation, now=True)

    async def _is_over(self, reservation: Reservation) -> bool:
        """Whether the ledger itself, past every watch, has no claim that the reservation serves.

        Another leader may have promised the card a moment ago; a claim of his epoch ends ours.
        """
        stored = await self._store.read_ledger(reservation.node)
        epoch = self._epoch()
        if isinstance(stored, Failed) or epoch is None:
            return False
        if stored is not None and (stored.epoch > epoch or self._has_news(reservation, stored.claims)):
            return False
        node = self._books.fleet.node(reservation.node)
        if node is None:
            return True
        upkeep = plan_upkeep(situation_of(self._books, self._holds, node), self._claimed_on(node))
        return reservation.name in {each.name for each in upkeep.end}

    def _claimed_on(self, node: Node) -> Claimed:
        """Return what cards of a node are for, those for which another leader's bind waits among them."""
        begun = (each for each in self._requests.pending() if each.node == node.name)
        waiting = (each for each in begun if is_waiting(self._books.pods.get(each.pod_uid)))
        return claimed_on(self._books, node, (share.uuid for each in waiting for share in each.gpus))

    def _has_news(self, reservation: Reservation, claims: tuple[Claim, ...]) -> bool:
        """Whether a claim on its card is stored that the books have not heard of."""
        cards = {reservation.card, reservation.planned}
        known = self._books.fleet.ledger
        return any(claim.gpu in cards and not known.of_pod(claim.pod_uid) for claim in claims)

    def _pause_or_forget(self, name: str, upkeep: Upkeep) -> None:
        """Wait longer and longer for a card that kubelet has given to somebody else."""
        if upkeep.lost:
            before = self._pauses.get(name)
            length_s = min(_LONGEST_PAUSE_S, before.length_s * 2) if before else _FIRST_PAUSE_S
            self._pauses[name] = _Pause(self._clock() + length_s, length_s)
            if before is not None:  # twice in a row is no accident
                for card in upkeep.lost:
                    self._log.warning("reservation.lost", node=name, card=card)
                    self._tell(LostCard(name, card))
        elif not upkeep.make and not upkeep.end:
            self._pauses.pop(name, None)

    def _may_try(self, name: str) -> bool:
        pause = self._pauses.get(name)
        return pause is None or self._clock() >= pause.until

    def _nodes_with_claims(self) -> set[str]:
        cards = {claim.gpu for claim in self._books.fleet.ledger}
        found = (self._books.fleet.gpu(card) for card in cards)
        return {gpu.node for gpu in found if gpu is not None}

    async def _complete_records(self) -> None:
        """Write the record of binds whose end nobody had the time to write, or that a lost answer hid."""
        written = 0
        for pod in list(self._books.pods.values()):
            if written >= _RECORDS_AT_ONCE or self._epoch() is None:
                return
            if pod.phase not in (PodPhase.BOUND, PodPhase.RUNNING) or not is_ours(pod):
                continue
            if self._books.is_held(pod.uid) or self._requests.has_succeeded(pod):
                continue
            written += 1
            request = self._requests.of(pod)
            if request is not None and request.node == pod.node:
                await self._requests.end(request, pod, refused="")
            else:  # nothing was written of the attempt that led there
                given = () if pod.allocation is None else pod.allocation.gpus
                await self._requests.close(pod, Placement(node=pod.node or "", gpus=given), refused="")
