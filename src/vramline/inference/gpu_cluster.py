"""A cluster's GPUs as its API objects tell them: nodes, reports, ledgers and pods, read once.

Four lists, and no `kubectl`. `other_eyes` is asked about nodes without an agent; what nobody tells stays
unknown.
"""

import asyncio
import os
import random
import time
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from vramline.decide.adoption import adopt_pods
from vramline.decide.host import refuse_by_room, refuse_by_wishes
from vramline.errors import RequestError
from vramline.inference.other_eyes import OtherEyes, Sources
from vramline.kube.client import KubeClient
from vramline.kube.failures import NotFoundError
from vramline.kube.objects import LEDGERS, NODES, PODS, REPORTS, Listing, Resource
from vramline.kube.target import Target, find_target
from vramline.model.claim import Claim
from vramline.model.fleet import DEFAULT_MARGIN, Fleet
from vramline.model.host import HostColumns, requests_of
from vramline.model.node import Node, NodeProblem, ProblemKind
from vramline.model.observation import Observation
from vramline.model.pod import Pod, PodPhase
from vramline.model.rules import Rules
from vramline.wire.kubernetes import NodeObject, PodObject
from vramline.wire.ledger_v1alpha1 import GpuLedger
from vramline.wire.nodes import read_node
from vramline.wire.pods import read_pod
from vramline.wire.report_v1alpha1 import GpuReport

__all__ = ["GpuCluster", "Sources", "find_cluster", "read_gpu_cluster", "run_now"]

T = TypeVar("T")
_RELEASE_GRACE_S = 60.0


class GpuCluster:
    """The cards of a cluster and who holds them, at one moment."""

    def __init__(self, nodes: Iterable[NodeObject], reports: Mapping[str, GpuReport], *, now: float) -> None:
        self.rules = Rules()
        self.fleet = Fleet(DEFAULT_MARGIN)
        self.problems: list[str] = []
        """Objects that could not be believed, in whole or in part."""
        self._now = now
        self._pods: dict[str, Pod] = {}
        self._containers: dict[str, str] = {}
        self._hosts = HostColumns()
        for each in nodes:
            self._add_node(each, reports.get(each.name))

    @property
    def pods(self) -> Mapping[str, Pod]:
        """Every pod that could be read, by UID."""
        return self._pods

    def now(self) -> float:
        """When it was read."""
        return self._now

    def candidates_for(self, pod: Pod) -> npt.NDArray[np.int8]:
        """Judge the hosts as kube-scheduler would."""
        return refuse_by_room(refuse_by_wishes(self.fleet, pod.host), self._hosts, pod.host)

    def add_pods(self, pods: Iterable[PodObject], ledgers: Iterable[GpuLedger]) -> None:
        """Take in who holds what; called once, after the nodes."""
        for each in pods:
            try:
                pod = read_pod(each)
            except RequestError as error:
                self.problems.append(str(error))
                self._freeze_under(each, str(error))
                continue
            self._pods[pod.uid] = pod
            self._containers[pod.uid] = _device_container(each, pod.device_containers)
            number = self.fleet.node_number(pod.node or "")
            if number is not None and pod.phase is not PodPhase.FINISHED:
                self._hosts.take(number, pod.host)
        self._count_requests()
        books: dict[str, list[Claim]] = {}
        for ledger in ledgers:
            for claim in ledger.claims:
                books.setdefault(claim.pod_uid, []).append(claim)
        known = {uid: tuple(claims) for uid, claims in books.items() if uid in self._pods}
        doubts = adopt_pods(self.fleet, self._pods.values(), self.rules, known)
        self.problems += [str(doubt) for doubt in doubts]
        for uid, claims in books.items():
            if uid not in self._pods:
                self.fleet.adopt(claim for claim in claims if self.fleet.gpu(claim.gpu) is not None)
        self.fleet.settle(now=self._now, grace_s=_RELEASE_GRACE_S, max_age_s=self.rules.max_age_s)

    def _count_requests(self) -> None:
        """Where the GPU takes from the machine's memory, say what pods have requested of it."""
        for node in [node for node in self.fleet.nodes if node.is_unified]:
            there = (pod for pod in self._pods.values() if pod.node == node.name)
            holding = ((pod.uid, pod.host) for pod in there if pod.phase is not PodPhase.FINISHED)
            self.fleet.set_requests(node.name, requests_of(holding))

    def is_seen(self, uuid: str) -> bool:
        """Whether a fresh look at a card is known."""
        row = self.fleet.columns.row_of.get(uuid)
        return row is not None and self.fleet.columns.is_fresh(
            row, now=self._now, max_age_s=self.rules.max_age_s
        )

    def device_container(self, pod_uid: str) -> str | None:
        """Return the name of the container that has the pod's GPUs; None: it has no container."""
        return self._containers.get(pod_uid) or None

    def see(self, seen: Mapping[str, Observation]) -> None:
        """Take in looks at cards by somebody other than an agent, by UUID."""
        for uuid, observation in seen.items():
            self.fleet.observe(uuid, observation)
            self._now = max(self._now, observation.at)
        self.fleet.settle(now=self._now, grace_s=_RELEASE_GRACE_S, max_age_s=self.rules.max_age_s)

    def _add_node(self, each: NodeObject, report: GpuReport | None) -> None:
        try:
            reading = read_node(each, report)
        except RequestError as error:
            self.problems.append(str(error))
            problem = NodeProblem(ProblemKind.UNKNOWN_INVENTORY, str(error))
            self.fleet.set_node(Node(name=each.name, problem=problem))
            return
        self.fleet.set_node(reading.node)
        number = self.fleet.node_number(reading.node.name)
        if number is not None:
            self._hosts.set_node(number, reading.node)
        for uuid, seen in reading.observations.items():
            self.fleet.observe(uuid, seen)

    def _freeze_under(self, each: PodObject, why: str) -> None:
        """A pod that nobody can read holds something on its node; nothing of that node is called free."""
        node = each.spec.node_name if each.spec else None
        if node and self.fleet.node(node) is not None:
            self.fleet.freeze(node, NodeProblem(ProblemKind.FROZEN, why))


def find_cluster(kubeconfig: str | Path | None) -> Target:
    """Return the API server of a kubeconfig, of KUBECONFIG, of the pod one runs in, or of ~/.kube/config."""
    return find_target(os.environ, kubeconfig=None if kubeconfig is None else Path(kubeconfig))


def read_gpu_cluster(kubeconfig: str | Path | None = None, *, sources: Sources | None = None) -> GpuCluster:
    """Read a cluster now: nodes, pods, reports and ledgers, each listed once.

    About nodes without an agent the `sources` are asked: this machine, exporters, running pods with a GPU.
    Raises `RequestError` where no cluster is configured and `ApiError` where it does not answer; it never
    returns an empty cluster instead.
    """
    target = find_cluster(kubeconfig)
    return run_now(_read(target, sources or Sources()))


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also for a caller that is inside an event loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, work).result()


async def _read(target: Target, sources: Sources) -> GpuCluster:
    async with KubeClient(target, rng=random.Random()) as client:  # noqa: S311 — jitter, not secrets
        nodes, pods = await client.list(NODES), await client.list(PODS)
        reports, ledgers = await _list_if_known(client, REPORTS), await _list_if_known(client, LEDGERS)
    cluster = GpuCluster(
        [each.value for each in nodes.items],
        {each.key.name: each.value for each in reports.items},
        now=time.time(),
    )
    for unread in (*nodes.unreadable, *reports.unreadable, *ledgers.unreadable, *pods.unreadable):
        cluster.problems.append(unread.problem)
    for unread in (*reports.unreadable, *ledgers.unreadable):
        if cluster.fleet.node(unread.key.name) is not None:
            cluster.fleet.freeze(unread.key.name, NodeProblem(ProblemKind.FROZEN, unread.problem))
    cluster.add_pods([each.value for each in pods.items], [each.value for each in ledgers.items])
    await OtherEyes(cluster, target, sources).look()
    return cluster


def _device_container(pod: PodObject, has_devices: tuple[bool, ...]) -> str:
    """Return the container with GPUs, else the first; init containers have ended when a pod runs."""
    spec = pod.spec
    names = [each.name for each in (spec.containers if spec else None) or ()]
    mine = has_devices[-len(names) :] if names else ()
    return next((name for name, has in zip(names, mine, strict=False) if has), names[0] if names else "")


async def _list_if_known(client: KubeClient, resource: Resource[T]) -> Listing[T]:
    """A kind that is not installed has no objects."""
    try:
        return await client.list(resource)
    except NotFoundError:
        return Listing(items=(), unreadable=(), version=0)
