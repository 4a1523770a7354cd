"""What the binder reads of the cluster's state."""

from collections.abc import Mapping
from typing import Protocol

from vramline.binder.cover import Claimed, Situation
from vramline.binder.holds import Holds
from vramline.model.fleet import Fleet
from vramline.model.node import Node
from vramline.model.pod import Pod, PodPhase
from vramline.wire import keys

__all__ = ["Books", "claimed_on", "situation_of"]


class Books(Protocol):
    """Nodes, cards, claims and pods, as the scheduler knows them."""

    @property
    def fleet(self) -> Fleet:
        """Nodes, cards and claims, those of binds under way included."""
        ...

    @property
    def pods(self) -> Mapping[str, Pod]:
        """Every pod that could be read, by UID."""
        ...

    def pods_on(self, node: str) -> list[Pod]:
        """The pods on a node that hold something there, or may."""
        ...

    def is_held(self, pod_uid: str) -> bool:
        """Whether a bind of this pod is under way here."""
        ...


def situation_of(books: Books, holds: Holds, node: Node) -> Situation:
    """Return who has devices of a node's kubelet."""
    there = (pod for pod in books.pods_on(node.name) if pod.namespace != holds.namespace)
    takers = [pod for pod in there if pod.holds_devices]
    own = [pod for pod in takers if _is_ours(pod)]
    return Situation(
        node=node,
        reservations=holds.on(node.name),
        own_devices=sum(len(pod.allocation.gpus) for pod in own if pod.allocation is not None),
        strangers=len(own) < len(takers),
    )


def claimed_on(books: Books, node: Node) -> Claimed:
    """Return what pods have to do with each card of a node; pods with devices of their own share none."""
    anything, shared, awaited = set(), set(), set()
    for gpu in node.gpus:
        for claim in books.fleet.ledger.of_card(gpu.uuid):
            pod = books.pods.get(claim.pod_uid)
            if pod is not None and pod.holds_devices and pod.node is not None:
                continue
            anything.add(gpu.uuid)
            if pod is not None and pod.node is None:
                awaited.add(gpu.uuid)
            elif pod is not None and pod.phase in (PodPhase.BOUND, PodPhase.RUNNING):
                shared.add(gpu.uuid)
    return Claimed(any=frozenset(anything), shared=frozenset(shared), awaited=frozenset(awaited))


def _is_ours(pod: Pod) -> bool:
    return pod.allocation is not None and pod.allocation.origin == keys.ALLOCATION
