"""A real cluster, as the HTTP faces see it: live state for questions, the committer for binds."""

import numpy as np
import numpy.typing as npt

from vramline.model.cluster import BindOutcome
from vramline.model.pod import Pod
from vramline.scheduler.commit import Committer
from vramline.scheduler.live import LiveState
from vramline.scheduler.live_cluster import LiveCluster
from vramline.scheduler.nominator import Nominator
from vramline.scheduler.openings import refuse_hosts
from vramline.scheduler.preempter import Preempter

__all__ = ["RealCluster"]


class RealCluster(LiveCluster):
    """Satisfies `model.cluster.Cluster`."""

    def __init__(
        self,
        live: LiveState,
        committer: Committer,
        preempter: Preempter | None = None,
        nominator: Nominator | None = None,
    ) -> None:
        super().__init__(live)
        self.committer = committer
        self.preempter = preempter
        """None: nobody is sent away where VRAM alone is short."""
        self.nominator = nominator
        """None: kube-scheduler gets no hints."""

    def candidates_for(self, pod: Pod) -> npt.NDArray[np.int8] | None:
        """kube-scheduler has judged the hosts before it asks; only what it cannot know speaks here."""
        return refuse_hosts(self.live, self.committer.holder, pod)

    def leads(self) -> bool:
        """Whether this replica may bind pods now."""
        return self.committer.leads()

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
