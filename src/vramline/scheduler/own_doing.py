"""Changes that are our own doing.

A claim that is held was stored, the bind that held it is over, the pod is bound to the cards it was promised,
or runs. They are by far the most frequent, and change one pod's claims or nothing: deriving the whole node
anew would say the same.
"""

from collections.abc import Callable, Mapping

from vramline.model.claim import Claim
from vramline.model.fleet import Fleet
from vramline.model.ledger import Reservation
from vramline.model.pod import Pod, PodPhase
from vramline.scheduler.stored_ledgers import StoredLedgers
from vramline.wire.ledger_v1alpha1 import GpuLedger

__all__ = ["OwnDoing"]

_AT_FIRST, _THEN = {PodPhase.PENDING, PodPhase.BOUND}, {PodPhase.BOUND, PodPhase.RUNNING}


class OwnDoing:
    """Recognises such changes in what a live state knows."""

    def __init__(
        self,
        fleet: Fleet,
        ledgers: StoredLedgers,
        pods: Mapping[str, Pod],
        under_way: Mapping[str, Reservation],
        stored_for: Callable[[str, str], tuple[Claim, ...]],
    ) -> None:
        """All of them are followed as they change; `stored_for` returns a pod's stored claims on a node."""
        self._fleet = fleet
        self._ledgers = ledgers
        self._pods = pods
        self._under_way = under_way
        self._stored_for = stored_for

    def adds_what_is_held(self, known: GpuLedger, ledger: GpuLedger) -> bool:
        """Whether a ledger differs from the one before only by claims that binds under way hold already."""
        node = self._fleet.node(ledger.node)
        if node is None or node.problem is not None:
            return False
        before = set(known.claims)
        added = [claim for claim in ledger.claims if claim not in before]
        return len(before) + len(added) == len(ledger.claims) and all(map(self._is_held_so, added))

    def is_stored(self, reservation: Reservation) -> bool:
        """Whether all that a bind held is in the ledger, for a pod that is there."""
        pod = self._pods.get(reservation.claims[0].pod_uid)
        if pod is None or pod.node not in {None, reservation.node}:
            return False
        let_go, stored = self._ledgers.are_let_go(reservation.node), self._ledgers[reservation.node].claims
        return pod.uid not in let_go and all(claim in stored for claim in reservation.claims)

    def is_bound_as_promised(self, was: Pod, pod: Pod) -> bool:
        """Whether a pod is now bound to, or runs on, exactly the cards that it holds."""
        if pod.node is None or was.node not in {None, pod.node}:
            return False
        if was.phase not in _AT_FIRST or pod.phase not in _THEN:
            return False
        node = self._fleet.node(pod.node)
        if node is None or node.problem is not None or self._ledgers.nodes_of(pod.uid) != {pod.node}:
            return False
        told = {share.uuid for share in pod.allocation.gpus} if pod.allocation is not None else set()
        held = {claim.gpu for claim in self._fleet.ledger.of_pod(pod.uid)}
        return bool(told) and told == held == {claim.gpu for claim in self._stored_for(pod.uid, pod.node)}

    def _is_held_so(self, claim: Claim) -> bool:
        pod, uid = self._pods.get(claim.pod_uid), claim.pod_uid
        waits = pod is not None and pod.phase is PodPhase.PENDING and uid in self._under_way
        return waits and claim in self._fleet.ledger.of_pod(uid)
