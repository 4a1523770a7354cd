"""Reservations: deciding and holding memory in one step, for a service whose pods are yet to come.

A reservation is an advance claim in the ledger of one node, made by the same `decide` and the same write as
the claim of a pod. It ends when its time is over, when its token's holder says so, or when a pod of its owner
takes it over (`advances` has the rules). Only the leader makes and ends one.
"""

import math
import secrets
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from vramline.decide.engine import decide
from vramline.decide.host import refuse_by_room, refuse_by_wishes
from vramline.decide.reserve import reservation_of
from vramline.errors import RequestError
from vramline.explain.decision import Explanation, explain_decision
from vramline.model.ask import Ask, MibSize
from vramline.model.claim import Claim
from vramline.model.decision import Decision
from vramline.model.ledger import Reservation
from vramline.model.pod import GpuShare, Pod
from vramline.model.reason import FITS
from vramline.scheduler.commit import Committer
from vramline.scheduler.ledger_desk import Lost
from vramline.scheduler.live import LiveState
from vramline.telemetry.tallies import Happening, Tallies
from vramline.units import MAX_MIB, Mib
from vramline.wire.decoding import convert_document
from vramline.wire.kubernetes import PodObject
from vramline.wire.pods import read_pod
from vramline.wire.reservations import is_token, seal_of

__all__ = ["NoRoom", "NotDone", "Reservations", "Reserved", "Wish", "read_wish"]

_SUBJECT = "reservation"
_PLANS = 3
"""How often it is planned anew after somebody else wrote first."""
_LONGEST_S = 3_600
_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
_Name = Annotated[str, Meta(min_length=1, max_length=253, pattern=_NAME)]


class _Owner(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    namespace: _Name
    name: _Name


class _Amount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mib: Annotated[int, Meta(ge=1, le=MAX_MIB)]
    gpus: Annotated[int, Meta(ge=1, le=64)] = 1


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    owner: _Owner
    ask: _Amount | None = None
    pod: dict[str, Any] | None = None
    ttl_seconds: Annotated[int, Meta(ge=1, le=_LONGEST_S)] = 600
    token: str | None = None


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be reserved, for whom, and for how long."""

    owner: str
    """namespace/name; its pods are called so, or so with `-` and more behind it."""
    pod: Pod
    ask: Ask
    ttl_s: float
    token: str


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation. The token is told once, to whom it was made for."""

    owner: str
    node: str
    gpus: list[GpuShare]
    until: float
    id: str
    """The seal: by this everybody may speak of it."""
    token: str | None = None
    warnings: list[str] = []


class NoRoom(msgspec.Struct, frozen=True):
    """Nothing was reserved, because it fits nowhere now."""

    explanation: Explanation


class NotDone(msgspec.Struct, frozen=True):
    """Nothing was reserved or ended: this replica may not, or the ledger could not be written."""

    error: str
    leader: str = ""
    """Who may, as far as is known."""


def read_wish(document: object) -> Wish:
    """Read the body of a request; raise `RequestError` for what it gets wrong."""
    forms = {"namespace": "the name of a namespace", "name": "the name of a service, workload or pod"}
    request = convert_document(document, _Request, subject=_SUBJECT, forms=forms)
    owner, token = f"{request.owner.namespace}/{request.owner.name}", request.token or secrets.token_hex(16)
    if not is_token(token):
        raise RequestError(
            subject=_SUBJECT, field="token", problem="is none", accepted="32 random hexadecimal digits"
        )
    if (request.ask is None) == (request.pod is None):
        raise RequestError(
            subject=_SUBJECT,
            problem="says not what is asked for" if request.ask is None else "asks twice",
            accepted='"ask": {"mib": 8000, "gpus": 1}, or "pod" with a v1 Pod that asks for GPUs',
        )
    pod = _pod_of(request, owner)
    if pod.ask is None:
        raise RequestError(subject=_SUBJECT, field="pod", problem="asks for no GPU")
    ask = msgspec.structs.replace(pod.ask, pod=owner, pod_uid=seal_of(token))
    return Wish(owner=owner, pod=pod, ask=ask, ttl_s=float(request.ttl_seconds), token=token)


def _pod_of(request: _Request, owner: str) -> Pod:
    """Return the pod that is to come, as far as it is known."""
    if request.ask is not None:
        size = MibSize(Mib(request.ask.mib))
        ask = Ask(pod=owner, pod_uid="", gpus=request.ask.gpus, size=size)
        return Pod(namespace=request.owner.namespace, name=request.owner.name, uid="", ask=ask)
    document = convert_document(request.pod, PodObject, subject=_SUBJECT)
    named = msgspec.structs.replace(
        document.metadata, name=request.owner.name, namespace=request.owner.namespace
    )
    return read_pod(msgspec.structs.replace(document, metadata=named))


class Reservations:
    """Makes, lists and ends reservations for one leader."""

    def __init__(
        self,
        live: LiveState,
        committer: Committer,
        *,
        leader: Callable[[], str] = lambda: "",
        tallies: Tallies | None = None,
    ) -> None:
        """`leader` says who leads, as far as is known."""
        self._live = live
        self._committer = committer
        self._leader = leader
        self._tallies = tallies or Tallies()

    async def reserve(self, wish: Wish) -> Reserved | NoRoom | NotDone:
        """Find room and hold it. The same token again is told what it has already."""
        seal, lost = seal_of(wish.token), Lost("", retry=True)
        for _ in range(_PLANS):
            epoch = self._committer.term()
            if epoch is None:
                return self._not_leading()
            known = self._find(seal)
            if known is not None:
                return self._told_again(known, wish)
            hosts = self._judge_hosts(wish.pod)
            rules, fleet = self._live.rules_for(wish.ask), self._live.fleet
            decision = decide(fleet, wish.ask, rules, now=self._live.now(), candidates=hosts)
            if decision.placement is None:
                self._tallies.count(Happening.RESERVATIONS, "refused")
                return NoRoom(explain_decision(fleet, decision, rules, most_nodes=5, candidates=hosts))
            written = await self._write(_advance_of(decision, wish, self._live.now(), epoch))
            if isinstance(written, Reserved):
                self._tallies.count(Happening.RESERVATIONS, "made")
                return msgspec.structs.replace(written, token=wish.token)
            lost = written
            if not lost.retry:
                break
        return NotDone(f"the ledger was not written: {lost.detail}")

    async def end(self, token: str) -> bool | NotDone:
        """End a reservation; False: there is none with this token, or not any more."""
        if self._committer.term() is None:
            return self._not_leading()
        seal = seal_of(token)
        nodes = self._live.nodes_promised_to(seal)
        for node in nodes:
            written = await self._committer.desk.write(node, remove=[seal])
            if isinstance(written, Lost):
                return NotDone(f"the ledger of {node} was not written: {written.detail}")
        if nodes:
            self._tallies.count(Happening.RESERVATIONS, "ended")
        return bool(nodes)

    def list_all(self) -> list[Reserved]:
        """Return every reservation that holds memory, by owner."""
        found: dict[str, list[Claim]] = {}
        for claim in self._live.fleet.ledger:
            if claim.until is not None:
                found.setdefault(claim.pod_uid, []).append(claim)
        told = [self._tell(claims) for claims in found.values()]
        return sorted(told, key=lambda each: (each.owner, each.id))

    async def _write(self, reservation: Reservation) -> Reserved | Lost:
        seal = reservation.claims[0].pod_uid
        self._live.hold(reservation)
        try:
            written = await self._committer.desk.write(reservation.node, add=reservation.claims)
        finally:
            self._live.end_hold(seal)
        return written if isinstance(written, Lost) else self._tell(reservation.claims)

    def _judge_hosts(self, pod: Pod) -> npt.NDArray[np.int8]:
        """Judge every node as kube-scheduler would, which has not been asked."""
        fleet = self._live.fleet
        codes = refuse_by_wishes(fleet, pod.host)
        if fleet.hosts is not None:
            codes = refuse_by_room(codes, fleet.hosts, pod.host)
        kept = self._live.nominees.refuse(fleet, pod, now=self._live.now())
        return codes if kept is None else np.where(codes == FITS, kept, codes)

    def _find(self, seal: str) -> Reserved | None:
        claims = self._live.fleet.ledger.of_pod(seal)
        return self._tell(claims) if claims else None

    def _told_again(self, known: Reserved, wish: Wish) -> Reserved | NotDone:
        if known.owner != wish.owner:
            return NotDone("this token is in use for another owner")
        return msgspec.structs.replace(known, token=wish.token)

    def _tell(self, claims: Sequence[Claim]) -> Reserved:
        gpu = self._live.fleet.gpu(claims[0].gpu)
        return Reserved(
            owner=claims[0].pod,
            node="" if gpu is None else gpu.node,
            gpus=[GpuShare(claim.gpu, claim.mib, claim.cores) for claim in claims],
            until=claims[0].until or 0.0,
            id=claims[0].pod_uid,
        )

    def _not_leading(self) -> NotDone:
        leader = self._leader()
        who = f"{leader} does" if leader else "nobody does at this moment"
        return NotDone(f"this replica does not lead, {who}; ask there", leader)


def _advance_of(decision: Decision, wish: Wish, now: float, epoch: int) -> Reservation:
    """Return the claims of a decision as claims in advance."""
    made = reservation_of(decision, epoch=epoch)
    until = float(math.ceil(now + wish.ttl_s))
    claims = tuple(msgspec.structs.replace(claim, until=until) for claim in made.claims)
    return Reservation(node=made.node, claims=claims)
