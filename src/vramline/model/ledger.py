"""All claims: the only authority on what was promised."""

from collections.abc import Iterable, Iterator

import msgspec

from vramline.errors import InvariantError
from vramline.model.claim import Claim, ClaimState
from vramline.units import Mib

__all__ = ["CardLimits", "Ledger", "Reservation"]


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """A set of claims that is made together or not at all: one pod on the cards of one node."""

    node: str
    claims: tuple[Claim, ...]


class CardLimits(msgspec.Struct, frozen=True):
    """What the books of one card may add up to."""

    promise: Mib
    slots: int | None
    cores: int


class Ledger:
    """Claims by card and by pod, with a version that grows with every change.

    `apply` makes new promises and refuses to over-promise. `adopt` records what already happened
    (a pod that runs) and refuses nothing: reality is not negotiable, and the deficit shows in `free`.
    """

    def __init__(self) -> None:
        self.version = 0
        self._by_card: dict[str, dict[str, Claim]] = {}
        self._by_pod: dict[str, dict[str, Claim]] = {}
        self._releasing: dict[tuple[str, str], Claim] = {}
        """By pod and card: asked for often, and few of many."""
        self.has_advance = False
        """Whether any claim was ever made in advance."""

    def __len__(self) -> int:
        return sum(len(claims) for claims in self._by_pod.values())

    def __iter__(self) -> Iterator[Claim]:
        for claims in self._by_pod.values():
            yield from claims.values()

    def copy(self) -> "Ledger":
        """Return a ledger with the same claims that may be changed without changing this one."""
        copy = Ledger()
        copy.version = self.version
        copy._by_card = {uuid: dict(claims) for uuid, claims in self._by_card.items()}
        copy._by_pod = {pod_uid: dict(claims) for pod_uid, claims in self._by_pod.items()}
        copy._releasing, copy.has_advance = dict(self._releasing), self.has_advance
        return copy

    def only(self, cards: Iterable[str]) -> "Ledger":
        """Return the claims on these cards alone, under the same version."""
        alone = Ledger()
        alone.version = self.version
        alone._by_card = {uuid: dict(self._by_card[uuid]) for uuid in cards if uuid in self._by_card}
        for uuid, claims in alone._by_card.items():
            for pod_uid, claim in claims.items():
                alone._by_pod.setdefault(pod_uid, {})[uuid] = claim
                alone._note(claim)
        return alone

    def of_card(self, uuid: str) -> tuple[Claim, ...]:
        """Return the claims on one card, oldest first."""
        found = self._by_card.get(uuid)
        return tuple(found.values()) if found else ()

    def of_cards(self, uuids: Iterable[str]) -> list[tuple[Claim, ...]]:
        """Return the claims on each of many cards."""
        return [tuple(found.values()) if found else () for found in map(self._by_card.get, uuids)]

    def of_pod(self, pod_uid: str) -> tuple[Claim, ...]:
        """Return the claims of one pod."""
        return tuple(self._by_pod.get(pod_uid, {}).values())

    def apply(self, reservation: Reservation, limits: dict[str, CardLimits]) -> None:
        """Record a reservation; raise `InvariantError`, changing nothing, if it over-promises a card.

        `limits` holds every card the reservation names. Over-promising here is a bug of the caller:
        `decide` has just said that it fits.
        """
        pods = {claim.pod_uid for claim in reservation.claims}
        if len(pods) != 1 or len({claim.gpu for claim in reservation.claims}) != len(reservation.claims):
            raise InvariantError("a reservation is for one pod, with one claim a card")
        if self._by_pod.get(pods.pop()):
            raise InvariantError(f"{reservation.claims[0].pod} holds a claim already")
        for claim in reservation.claims:
            self._check(claim, limits[claim.gpu])
        self.adopt(reservation.claims)

    def adopt(self, claims: Iterable[Claim]) -> None:
        """Record claims without judging them. A claim of the same pod and card is replaced."""
        by_card, by_pod = self._by_card, self._by_pod
        for claim in claims:
            uuid, pod_uid = claim.gpu, claim.pod_uid
            if uuid in by_card:
                by_card[uuid][pod_uid] = claim
            else:
                by_card[uuid] = {pod_uid: claim}
            if pod_uid in by_pod:
                by_pod[pod_uid][uuid] = claim
            else:
                by_pod[pod_uid] = {uuid: claim}
            self._note(claim)
            self.version += 1

    def remove(self, pod_uid: str) -> tuple[Claim, ...]:
        """Forget a pod's claims (Gone or Abandoned) and return what they were."""
        removed = self._by_pod.pop(pod_uid, {})
        for uuid in removed:
            self._releasing.pop((pod_uid, uuid), None)
            card = self._by_card[uuid]
            del card[pod_uid]
            if not card:
                del self._by_card[uuid]
        self.version += bool(removed)
        return tuple(removed.values())

    def clear_card(self, uuid: str) -> tuple[Claim, ...]:
        """Forget the claims on one card and return what they were; what their pods hold elsewhere stays."""
        removed = self._by_card.pop(uuid, None)
        if removed is None:
            return ()
        for pod_uid in removed:
            self._releasing.pop((pod_uid, uuid), None)
            held = self._by_pod[pod_uid]
            del held[uuid]
            if not held:
                del self._by_pod[pod_uid]
        self.version += 1
        return tuple(removed.values())

    def releasing(self) -> tuple[Claim, ...]:
        """Return every claim that waits for proof of its end."""
        return tuple(self._releasing.values())

    def _note(self, claim: Claim) -> None:
        self.has_advance = self.has_advance or claim.until is not None
        if claim.state is ClaimState.RELEASING:
            self._releasing[claim.pod_uid, claim.gpu] = claim
        elif self._releasing:
            self._releasing.pop((claim.pod_uid, claim.gpu), None)

    def _check(self, claim: Claim, limits: CardLimits) -> None:
        there = self._by_card.get(claim.gpu, {}).values()
        mib = sum([other.mib for other in there]) + claim.mib
        cores = sum([other.cores for other in there]) + claim.cores
        if claim.mib <= 0 or mib > limits.promise:
            raise InvariantError(
                f"{claim.pod}: {mib} MiB claimed on {claim.gpu}, which promises {limits.promise}"
            )
        if limits.slots is not None and len(there) >= limits.slots:
            raise InvariantError(f"{claim.pod}: all {limits.slots} slots of {claim.gpu} are taken")
        if cores > limits.cores:
            raise InvariantError(
                f"{claim.pod}: {cores} % of the cores of {claim.gpu} claimed, of {limits.cores}"
            )
