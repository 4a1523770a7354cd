"""A cluster whose live state is at hand: the questions that it answers by itself."""

from collections.abc import Mapping

from vramline.model.ask import Ask
from vramline.model.fleet import Fleet
from vramline.model.pod import Pod
from vramline.model.rules import Rules
from vramline.scheduler.disagreements import find_disagreements
from vramline.scheduler.live import LiveState

__all__ = ["LiveCluster"]


class LiveCluster:
    """The part of `model.cluster.Cluster` that is the same whether or not anything may be done about it."""

    def __init__(self, live: LiveState) -> None:
        self.live = live

    @property
    def fleet(self) -> Fleet:
        """Nodes, cards, claims and observations."""
        return self.live.fleet

    @property
    def pods(self) -> Mapping[str, Pod]:
        """Every pod that could be read, by UID."""
        return self.live.pods

    def pod_at(self, uid: str, version: str) -> Pod | None:
        """Return a pod if it was last seen in this version."""
        return self.live.pods.get(uid) if version and self.live.version_of(uid) == version else None

    def now(self) -> float:
        """The time at which the state is as it is."""
        return self.live.now()

    def rules_for(self, ask: Ask | None) -> Rules:
        """How to decide about this ask."""
        return self.live.rules_for(ask)

    def view_of(self, node: str, pod: Pod) -> Fleet:
        """One node as this pod may use it."""
        return self.live.view_of(node, pod)

    def reserved_on(self, pod: Pod) -> list[str]:
        """The nodes on which memory is reserved for this pod in advance."""
        return self.live.reserved_on(pod)

    def disagreements(self) -> list[str]:
        """Live pods whose allocation no ledger confirms."""
        return find_disagreements(self.live)
