"""Where waiting pods would go, one after the other, on a copy of the fleet: nothing here is a promise."""

import msgspec
import numpy as np
import numpy.typing as npt

from vramline.decide.engine import decide
from vramline.decide.host import refuse_by_room, refuse_by_wishes
from vramline.decide.reserve import reservation_of
from vramline.errors import InvariantError
from vramline.model.ask import Ask, PolicyName
from vramline.model.decision import Decision
from vramline.model.host import HostColumns
from vramline.model.ledger import Reservation
from vramline.model.pod import Pod
from vramline.model.reason import FITS
from vramline.scheduler.live import LiveState

__all__ = ["Foresight"]

_PACKING = (PolicyName.BESTFIT, PolicyName.BINPACK)
"""Policies by which a card that was the best stays the best until it is full."""


class Foresight:
    """One look ahead. It knows less than kube-scheduler and more than it: hosts roughly, cards exactly."""

    def __init__(self, live: LiveState) -> None:
        self._live = live
        self._fleet = live.fleet.copy()
        self._now = live.now()
        self._hosts = (
            HostColumns(live.fleet.node_count) if live.fleet.hosts is None else live.fleet.hosts.copy()
        )
        self._wishes: dict[bytes, npt.NDArray[np.int8]] = {}
        self._nowhere: set[bytes] = set()
        self._last: dict[bytes, Reservation] = {}

    def keep(self, pod: Pod, reservation: Reservation) -> bool:
        """Count what was planned for a pod earlier; False: it no longer fits there."""
        number = self._fleet.node_number(reservation.node)
        if number is None:
            return False
        try:
            self._fleet.reserve(reservation)
        except InvariantError:
            return False
        self._hosts.take(number, pod.host)
        return True

    def is_open(self, pod: Pod, node: str) -> bool:
        """Whether a node takes such pods: it is ready, not cordoned, and as the pod wants it."""
        number = self._fleet.node_number(node)
        return number is not None and bool(self._refused_by_wishes(pod)[number] == FITS)

    def place_on(self, pod: Pod, node: str) -> Reservation | None:
        """Plan a pod for one node; None: it does not fit there now."""
        if pod.ask is None or self._fleet.node(node) is None:
            return None
        decision = decide(self._fleet.only(node), pod.ask, self._live.rules_for(pod.ask), now=self._now)
        if decision.placement is None:
            return None
        planned = reservation_of(decision)
        return planned if self.keep(pod, planned) else None

    def place(self, pod: Pod) -> Reservation | None:
        """Plan the next pod; None: it fits nowhere now."""
        if pod.ask is None:
            return None
        kind = _kind_of(pod, pod.ask)
        if kind in self._nowhere:
            return None
        decision = self._beside_the_last(pod, pod.ask, kind) or self._anywhere(pod, pod.ask)
        if decision.placement is None:
            self._nowhere.add(kind)
            return None
        planned = reservation_of(decision)
        if not self.keep(pod, planned):
            return None
        self._last[kind] = planned
        return planned

    def _beside_the_last(self, pod: Pod, ask: Ask, kind: bytes) -> Decision | None:
        """Decide for the cards that the last pod of the same kind got, where they must be the best still."""
        last, rules = self._last.get(kind), self._live.rules_for(ask)
        if last is None or len(self._live.nominees) or (ask.node_policy or rules.policy) not in _PACKING:
            return None
        number = self._fleet.node_number(last.node)
        if number is None or not self._has_room(number, pod):
            return None
        decision = decide(self._fleet.only(last.node), ask, rules, now=self._now)
        cards = {share.uuid for share in decision.placement.gpus} if decision.placement is not None else set()
        return decision if cards and cards == {claim.gpu for claim in last.claims} else None

    def _anywhere(self, pod: Pod, ask: Ask) -> Decision:
        candidates = refuse_by_room(self._refused_by_wishes(pod), self._hosts, pod.host)
        kept = self._live.nominees.refuse(self._fleet, pod, now=self._now)
        if kept is not None:
            candidates[(candidates == FITS) & (kept != FITS)] = kept[(candidates == FITS) & (kept != FITS)]
        return decide(self._fleet, ask, self._live.rules_for(ask), now=self._now, candidates=candidates)

    def _refused_by_wishes(self, pod: Pod) -> npt.NDArray[np.int8]:
        wishes = msgspec.msgpack.encode((pod.host.node_selector, pod.host.affinity, pod.host.affinity_names))
        wishes += msgspec.msgpack.encode(pod.host.tolerations)
        if wishes not in self._wishes:
            self._wishes[wishes] = refuse_by_wishes(self._fleet, pod.host)
        return self._wishes[wishes]

    def _has_room(self, number: int, pod: Pod) -> bool:
        hosts, needs = self._hosts, pod.host
        return bool(
            hosts.pods[number] >= 1
            and hosts.cpu_milli[number] >= needs.cpu_milli
            and hosts.memory_bytes[number] >= needs.memory_bytes
        )


def _kind_of(pod: Pod, ask: Ask) -> bytes:
    """Return the same for pods that want the same."""
    return msgspec.msgpack.encode((msgspec.structs.replace(ask, pod="", pod_uid=""), pod.host, pod.priority))
