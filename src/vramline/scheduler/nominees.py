"""Pods for which others were sent away, and what is kept for them until they are bound.

All that is known of them is in their own objects, in a condition that names the node, so that a restart
forgets none of it. `status.nominatedNodeName` would not do: kube-scheduler clears it when it finds nobody
to evict on the node, and others may write it as a mere hint.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from vramline.decide.engine import decide
from vramline.decide.preempt import keep_room
from vramline.model.ask import Ask
from vramline.model.fleet import Fleet
from vramline.model.pod import Pod, PodPhase
from vramline.model.reason import CODE_OF, FITS, Reason
from vramline.model.rules import Rules, rules_for

__all__ = ["Nominees"]

_KEPT = CODE_OF[Reason.KEPT_FOR_ANOTHER]


class Nominees:
    """Waiting preemptors by UID."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.waiting: dict[str, Pod] = {}
        """All pods that ask for GPUs and are on no node, those that came first first."""
        self.arrivals = 0
        """How often a pod began to wait."""
        self._pods: dict[str, Pod] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def note(self, uid: str, pod: Pod | None) -> None:
        """A pod changed; None: it is gone or cannot be read."""
        waits = pod is not None and pod.phase is PodPhase.PENDING and pod.ask is not None
        if pod is not None and waits:
            self.arrivals += uid not in self.waiting
            self.waiting[uid] = pod
        else:
            self.waiting.pop(uid, None)
        if pod is not None and waits and pod.preempts_on:
            self._pods[uid] = pod
        else:
            self._pods.pop(uid, None)

    def refuse(self, fleet: Fleet, pod: Pod, *, now: float) -> npt.NDArray[np.int8] | None:
        """Return by node number FITS, or that what is free is kept for others; None: nothing is kept."""
        if pod.ask is None or not self._pods:
            return None
        codes = np.full(fleet.node_count, FITS, dtype=np.int8)
        for node in {each.preempts_on for each in self._before(fleet, pod)}:
            number = fleet.node_number(node or "")
            if node is not None and number is not None and self._is_kept(fleet, node, pod, pod.ask, now):
                codes[number] = _KEPT
        return codes

    def view(self, fleet: Fleet, node: str, pod: Pod, *, now: float) -> Fleet:
        """Return one node as this pod may use it, as a fleet of its own that is only to be read."""
        asks = self._asks_before(fleet, pod, node) if self._pods else []
        return keep_room(fleet, node, asks, self._rules, now=now) if asks else fleet.only(node)

    def _is_kept(self, fleet: Fleet, node: str, pod: Pod, ask: Ask, now: float) -> bool:
        """Whether the pod would fit on the node, were nothing kept there."""
        rules = rules_for(self._rules, ask)
        if decide(fleet.only(node), ask, rules, now=now).placement is None:
            return False
        left = self.view(fleet, node, pod, now=now)
        return decide(left, ask, rules, now=now).placement is None

    def _asks_before(self, fleet: Fleet, pod: Pod, node: str) -> list[Ask]:
        there = sorted((each for each in self._before(fleet, pod) if each.preempts_on == node), key=_order)
        return [each.ask for each in there if each.ask is not None]

    def _before(self, fleet: Fleet, pod: Pod) -> Iterator[Pod]:
        """Yield the preemptors that come before a pod and hold nothing of their own yet.

        Among equally important ones a preemptor comes before everybody else, and of two preemptors the one
        that was created first: two of them must never wait for each other.
        """
        own = _order(pod)
        for uid, each in self._pods.items():
            if uid == pod.uid or each.priority < pod.priority or fleet.ledger.of_pod(uid):
                continue
            if each.priority > pod.priority or pod.uid not in self._pods or _order(each) < own:
                yield each


def _order(pod: Pod) -> tuple[int, float, str]:
    return -pod.priority, pod.created_at or 0.0, pod.uid
