"""A real cluster, as the HTTP faces see it: live state for questions, the committer for binds."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from vramline.model.ask import Ask
from vramline.model.cluster import BindOutcome
from vramline.model.fleet import Fleet
from vramline.model.pod import Pod
from vramline.model.rules import Rules
from vramline.scheduler.commit import Committer
from vramline.scheduler.disagreements import find_disagreements
from vramline.scheduler.live import LiveState
from vramline.scheduler.nominator import Nominator
from vramline.scheduler.openings import refuse_hosts
from vramline.scheduler.preempter import Preempter

__all__ = ["RealCluster"]


class RealCluster:
    """Satisfies `model.cluster.Cluster`."""

    def __init__(
        self,
        live: LiveState,
        committer: Committer,
        preempter: Preempter | None = None,
        nominator: Nominator | None = None,
    ) -> None:
        self.live = live
        self.committer = committer
        self.preempter = preempter
        """None: nobody is sent away where VRAM alone is short."""
        self.nominator = nominator
        """None: kube-scheduler gets no hints."""

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
        """The cluster's time."""
        return self.live.now()

    def rules_for(self, ask: Ask | None) -> Rules:
        """How to decide about this ask."""
        return self.live.rules_for(ask)

    def candidates_for(self, pod: Pod) -> npt.NDArray[np.int8] | None:
        """kube-scheduler has judged the hosts before it asks; only what it cannot know speaks here."""
        return refuse_hosts(self.live, self.committer.holder, pod)

    def view_of(self, node: str, pod: Pod) -> Fleet:
        """One node as this pod may use it."""
        return self.live.view_of(node, pod)

    def reserved_on(self, pod: Pod) -> list[str]:
        """The nodes on which memory is reserved for this pod in advance."""
        return self.live.reserved_on(pod)

    def leads(self) -> bool:
        """Whether this replica may bind pods now."""
        return self.committer.leads()

    def disagreements(self) -> list[str]:
        """Live pods whose allocation no ledger confirms."""
        return find_disagreements(self.live)

    async def meet(self, namespace: str, name: str) -> None:
        """Read a pod of which the watch has not told yet: kube-scheduler's may be faster."""
        await self.committer.meet(namespace, name)

    async def recall(self, pod_uid: str) -> None:
        """Take back what an earlier attempt promised to an unbound pod and did not keep."""
        if self.nominator is not None:
            self.nominator.tried(pod_uid)
            await self.nominator.get_ahead(pod_uid)
        await self.committer.recall(pod_uid)

    async def bind(self, pod_uid: str, node: str) -> BindOutcome:
        """Claim cards on the node, and bind."""
        if self.nominator is not None:
            await self.nominator.settle(pod_uid)
        return await self.committer.bind(pod_uid, node)
