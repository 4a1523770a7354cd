"""Advance claims: memory that is reserved before there is a pod, for whoever shows the token.

All that is known of one is in its node's ledger: the seal of its token, its owner, when it ends. A pod takes
it over when it is bound: the write that stores the pod's claim removes the advance claim. Nothing of it can
land late, because it concerns one object alone; so an end by time or by a caller is one write too.
"""

from collections.abc import Iterable

import msgspec

from vramline.model.claim import Claim
from vramline.model.ledger import Reservation
from vramline.model.pod import Pod, PodPhase
from vramline.wire import keys

__all__ = ["Advances"]


class Advances:
    """Who names which advance claim, and which of them are being taken over."""

    def __init__(self) -> None:
        self._named_by: dict[str, dict[str, Pod]] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._taken_by: dict[str, str] = {}
        """By pod that is being bound: the advance claim it takes over."""
        self._covered: dict[str, set[str]] = {}
        """By advance claim that is being taken over: the cards on which its pod holds its memory."""

    def note(self, uid: str, pod: Pod | None) -> None:
        """A pod changed; None: it is gone or cannot be read."""
        for seal in self._names.pop(uid, ()):
            self._named_by[seal].pop(uid, None)
            if not self._named_by[seal]:
                del self._named_by[seal]
        if pod is not None and pod.advances:
            self._names[uid] = pod.advances
            for seal in pod.advances:
                self._named_by.setdefault(seal, {})[uid] = pod

    def choose(self, pod: Pod, stored: Iterable[Claim], *, now: float) -> tuple[Claim, ...]:
        """Return the advance claims that a pod would take over of a node's stored claims; empty: none.

        Where a service has several there, the one with as many cards as the pod asks for comes first.
        """
        if not pod.advances or pod.ask is None:
            return ()
        open_to_it: dict[str, tuple[Claim, ...]] = {}
        for claim in stored:
            if claim.pod_uid in pod.advances and _may_take(pod, claim) and now < (claim.until or 0.0):
                open_to_it[claim.pod_uid] = (*open_to_it.get(claim.pod_uid, ()), claim)
        free = [claims for seal, claims in open_to_it.items() if self._is_free_for(seal, pod.uid)]
        gpus = pod.ask.gpus
        return min(free, key=lambda claims: (len(claims) != gpus, claims[0].pod_uid), default=())

    def take(self, taken: tuple[Claim, ...], reservation: Reservation) -> Reservation:
        """A bind begins that takes over an advance claim; return what it holds until its end is known.

        That is on each card the larger of both: should the pod not be bound, the advance claim stays, and
        nobody may have been given the difference meanwhile.
        """
        reserved = {claim.gpu: claim.mib for claim in taken}
        claims = tuple(
            msgspec.structs.replace(claim, mib=max(claim.mib, reserved.get(claim.gpu, 0)))
            for claim in reservation.claims
        )
        self._taken_by[claims[0].pod_uid] = taken[0].pod_uid
        self._covered[taken[0].pod_uid] = {claim.gpu for claim in claims}
        return Reservation(node=reservation.node, claims=claims)

    def taken_by(self, pod_uid: str) -> list[str]:
        """Return what the bind of a pod takes over: none or one."""
        return [self._taken_by[pod_uid]] if pod_uid in self._taken_by else []

    def end(self, pod_uid: str) -> None:
        """A bind is over, well or badly."""
        self._covered.pop(self._taken_by.pop(pod_uid, ""), None)

    def is_covered(self, claim: Claim) -> bool:
        """Whether the pod that takes over this claim holds its memory already."""
        return claim.gpu in self._covered.get(claim.pod_uid, ())

    def over(self, stored: Iterable[Claim], *, now: float) -> set[str]:
        """Return the advance claims among these that have ended: by time, or because their pod is placed."""
        return {
            claim.pod_uid
            for claim in stored
            if claim.until is not None
            and claim.pod_uid not in self._covered
            and (now >= claim.until or self._is_used_up(claim))
        }

    def _is_used_up(self, claim: Claim) -> bool:
        """Whether its pod got its memory without it: elsewhere, or from another scheduler.

        A pod of ours that names several has taken over one of them and leaves the others to its siblings.
        """
        for pod in self._named_by.get(claim.pod_uid, {}).values():
            placed = pod.node is not None and pod.phase is not PodPhase.FINISHED
            ours = pod.allocation is not None and pod.allocation.origin == keys.ALLOCATION
            if placed and _may_take(pod, claim) and (len(pod.advances) == 1 or not ours):
                return True
        return False

    def _is_free_for(self, seal: str, pod_uid: str) -> bool:
        return seal not in self._covered or self._taken_by.get(pod_uid) == seal


def _may_take(pod: Pod, claim: Claim) -> bool:
    """Whether a pod that knows the token is one of the owner's: in its namespace, and named after it."""
    namespace, _, name = claim.pod.partition("/")
    return (
        claim.until is not None
        and pod.namespace == namespace
        and (pod.name == name or pod.name.startswith(f"{name}-"))
    )
