"""What the binder reads of the cluster's state."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from vramline.binder.cover import Claimed, Situation
from vramline.binder.holds import Holds
from vramline.model.fleet import Fleet
from vramline.model.node import Node
from vramline.model.pod import Pod, PodPhase
from vramline.wire import keys

__all__ = ["Books", "claimed_on", "is_ours", "situation_of"]


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
    strangers = any(pod.holds_devices and not is_ours(pod) for pod in there)
    return Situation(node=node, reservations=holds.on(node.name), strangers=strangers)


def claimed_on(books: Books, node: Node, planned: Iterable[str] = ()) -> Claimed:
    """Return what pods have to do with each card of a node; `planned` is what binds of others wait for.

    Pods with devices of kubelet's need none held.
    """
    anything, used, awaited = set(), set(), set(planned)
    for gpu in node.gpus:
        for claim in books.fleet.ledger.of_card(gpu.uuid):
            pod = books.pods.get(claim.pod_uid)
            if pod is not None and pod.holds_devices and pod.node is not None:
                continue
            anything.add(gpu.uuid)
            if pod is not None and pod.node is None:
                awaited.add(gpu.uuid)
            elif pod is not None and pod.phase in (PodPhase.BOUND, PodPhase.RUNNING):
                used.add(gpu.uuid)
    return Claimed(any=frozenset(anything), used=frozenset(used), awaited=frozenset(awaited))


def is_ours(pod: Pod) -> bool:
    """Whether we placed it."""
    return pod.allocation is not None and pod.allocation.origin == keys.ALLOCATION
