"""The cluster read once from the API server: the state that a scheduler would have, without a scheduler.

What `vramline gpus`, `nodes`, `explain` and `doctor` show is a function of API objects, so it needs neither a
running scheduler nor a way into its pod. Only past decisions are missing: they are in a scheduler's memory.
"""

import random
import time
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from vramline.decide.host import refuse_by_room, refuse_by_wishes
from vramline.kube.client import KubeClient
from vramline.kube.failures import NotFoundError
from vramline.kube.objects import LEDGERS, NODES, PODS, REPORTS, Listing, Resource
from vramline.kube.target import Target
from vramline.model.cluster import BindOutcome
from vramline.model.host import HostColumns
from vramline.model.pod import Pod, PodPhase
from vramline.model.reason import FITS
from vramline.scheduler.live import LiveState
from vramline.scheduler.live_cluster import LiveCluster
from vramline.settings import Adoption, Settings, pool_from, rules_from
from vramline.wire.ledger_v1alpha1 import GpuLedger
from vramline.wire.pods import read_sighting
from vramline.wire.report_v1alpha1 import GpuReport

__all__ = ["ClusterReading", "SeenCluster", "open_client", "read_cluster"]

T = TypeVar("T")


class SeenCluster(LiveCluster):
    """A cluster to look at. Satisfies `model.cluster.Cluster`, but binds nothing."""

    def __init__(self, live: LiveState) -> None:
        super().__init__(live)
        self._hosts = HostColumns()
        for node in live.fleet.nodes:
            self._hosts.set_node(live.fleet.node_numbers([node.name])[0], node)
        for pod in live.pods.values():
            number = live.fleet.node_number(pod.node or "")
            if number is not None and pod.phase is not PodPhase.FINISHED:
                self._hosts.take(number, pod.host)

    def candidates_for(self, pod: Pod) -> npt.NDArray[np.int8]:
        """Judge the hosts as kube-scheduler would: it has not been asked."""
        codes = refuse_by_room(refuse_by_wishes(self.fleet, pod.host), self._hosts, pod.host)
        kept = self.live.nominees.refuse(self.fleet, pod, now=self.now())
        return codes if kept is None else np.where(codes == FITS, kept, codes)

    def leads(self) -> bool:
        """Never: who only looks binds nothing."""
        return False

    async def meet(self, namespace: str, name: str) -> None:
        """Nothing: who only reads is told of no pod."""
        del namespace, name

    async def recall(self, pod_uid: str) -> None:
        """Nothing: what is only read cannot be changed."""
        del pod_uid

    async def bind(self, pod_uid: str, node: str) -> BindOutcome:
        """Refuse: what is only read cannot be changed."""
        return BindOutcome(f"{pod_uid} cannot be bound to {node}: this is a view of the cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReading:
    """What the API server said at one time."""

    cluster: SeenCluster
    reports: dict[str, GpuReport]
    ledgers: dict[str, GpuLedger]
    problems: tuple[str, ...]
    """Objects that are there and cannot be read."""
    read_at: float

    def ages(self) -> list[float]:
        """Return how old the reports are, in seconds, youngest first."""
        seen = (report.observed_at for report in self.reports.values())
        return sorted(self.read_at - at for at in seen if at is not None)


def open_client(target: Target) -> KubeClient:
    """Return a client for one call of a command."""
    return KubeClient(target, rng=random.Random())  # noqa: S311 — jitter, not secrets


async def read_cluster(client: KubeClient, settings: Settings) -> ClusterReading:
    """List nodes, reports, ledgers and pods once, and derive the state; raises `ApiError`.

    A kind that is not installed has no objects.
    """
    nodes, pods = await client.list(NODES), await client.list(PODS)
    reports, ledgers = await _list_if_known(client, REPORTS), await _list_if_known(client, LEDGERS)
    read_at = time.time()
    live = LiveState(
        rules_from(settings),
        clock=lambda: read_at,
        margin=settings.margin,
        release_grace_s=settings.release_grace_s,
        adopts_all=settings.adoption is Adoption.ALL,
        pool=pool_from(settings),
    )
    live.start_listing()
    for report in reports.items:
        live.set_report(report.value)
    for ledger in ledgers.items:
        live.set_ledger(ledger.value)
    for node in nodes.items:
        live.set_node(node.value)
    live.see_pods([read_sighting(pod.value) for pod in pods.items])
    for unread in (*nodes.unreadable, *reports.unreadable, *ledgers.unreadable):
        live.set_problem(unread.key.name, unread.problem, unread.problem)
    live.finish_listing_pods()
    live.finish_listing()
    unreadable = (*nodes.unreadable, *reports.unreadable, *ledgers.unreadable, *pods.unreadable)
    return ClusterReading(
        cluster=SeenCluster(live),
        reports={each.key.name: each.value for each in reports.items},
        ledgers={each.key.name: each.value for each in ledgers.items},
        problems=tuple(each.problem for each in unreadable),
        read_at=read_at,
    )


async def _list_if_known(client: KubeClient, resource: Resource[T]) -> Listing[T]:
    try:
        return await client.list(resource)
    except NotFoundError:
        return Listing(items=(), unreadable=(), version=0)
