"""What the API server tells, handed to the live state: a reflector for each kind, one owner of the state."""

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

from vramline.kube.client import KubeClient
from vramline.kube.mirror import Added, Change, Changed, Deleted, Synced
from vramline.kube.objects import (
    BIND_REQUESTS,
    LEDGERS,
    NODES,
    POD_SIGHTINGS,
    REPORTS,
    Resource,
    Stored,
    Unreadable,
)
from vramline.kube.reflector import Reflector
from vramline.kube.second_lister import SecondLister
from vramline.scheduler.live import LiveState
from vramline.serve.binding import Binding
from vramline.wire.bind_request_v1alpha1 import BindRequest
from vramline.wire.kubernetes import NodeObject
from vramline.wire.ledger_v1alpha1 import GpuLedger
from vramline.wire.pods import PodSighting
from vramline.wire.report_v1alpha1 import GpuReport

__all__ = ["Feeds"]

T = TypeVar("T")


class Feeds:
    """Keeps a live state in step with the API server."""

    def __init__(
        self,
        client: KubeClient,
        live: LiveState,
        *,
        rng: random.Random,
        binding: Binding | None = None,
        second: SecondLister | None = None,
    ) -> None:
        """`second` lists some of what is there at the start."""
        self._live = live
        self._client = client
        self._rng = rng
        self._binding = binding
        self._second = second
        self._reflectors: dict[str, Reflector[object]] = {}
        self._kinds = 4
        self._ahead: Callable[[], object] = lambda: None
        self.synced = asyncio.Event()
        """Set once every kind has been listed: from then on answers are right."""

    async def run(self) -> None:
        """Follow all kinds until cancelled. What the lists mean is worked out when all are there."""
        self._live.start_listing()
        self._kinds = 4 if self._binding is None else 5
        async with asyncio.TaskGroup() as tasks:
            self._ahead = lambda: tasks.create_task(self._read_ahead())
            if self._binding is not None:
                tasks.create_task(self._follow(BIND_REQUESTS, self._take_request))
            live = self._live
            tasks.create_task(self._follow(NODES, self._take_node, _all_to(live.set_node)))
            tasks.create_task(self._follow(REPORTS, self._take_report, _all_to(live.set_report)))
            tasks.create_task(self._follow(LEDGERS, self._take_ledger, _all_to(live.set_ledger)))
            tasks.create_task(self._follow(POD_SIGHTINGS, self._take_pod, self._take_new_pods))

    async def _follow(
        self,
        resource: Resource[T],
        take: Callable[[Change[T]], None],
        take_new: Callable[[list[Stored[T]]], None] | None = None,
    ) -> None:
        reflector = Reflector(self._client, resource, rng=self._rng)
        reflector.take_new = take_new
        reflector.second = None if self._second is None else self._second.lister(resource)
        self._reflectors[resource.plural] = reflector  # type: ignore[assignment]

        def deliver(change: Change[T]) -> None:
            take(change)
            if isinstance(change, Synced) and not self.synced.is_set():
                reflector.synced = True
                followed = self._reflectors.values()
                if len(followed) == self._kinds and all(each.synced for each in followed):
                    self._live.finish_listing()
                    self.synced.set()
                elif resource in (NODES, REPORTS) and self._knows_nodes():
                    self._ahead()

        await reflector.run(deliver)

    def _knows_nodes(self) -> bool:
        """Whether all that nodes themselves are read from has been listed."""
        return all(self._reflectors[each.plural].synced for each in (NODES, REPORTS))

    async def _read_ahead(self) -> None:
        """Read nodes while pods are on their way; whoever waits for bytes has a turn after every step."""
        for _ in self._live.read_ahead():
            await asyncio.sleep(0)

    def _take_node(self, change: Change[NodeObject]) -> None:
        match change:
            case Added(stored) | Changed(stored):
                self._live.set_node(stored.value)
                self._live.set_problem(stored.key.name, "Node", None)
            case Deleted(key):
                self._live.drop_node(key.name)
            case Unreadable(key=key, problem=problem):
                self._live.set_problem(key.name, "Node", problem)

    def _take_report(self, change: Change[GpuReport]) -> None:
        match change:
            case Added(stored) | Changed(stored):
                self._live.set_report(stored.value)
                self._live.set_problem(stored.key.name, "GpuReport", None)
            case Deleted(key):
                self._live.drop_report(key.name)
            case Unreadable(key=key, problem=problem):
                self._live.set_problem(key.name, "GpuReport", problem)

    def _take_ledger(self, change: Change[GpuLedger]) -> None:
        match change:
            case Added(stored) | Changed(stored):
                self._live.set_ledger(stored.value)
                self._live.set_problem(stored.key.name, "GpuLedger", None)
            case Deleted(key):
                self._live.drop_ledger(key.name)
            case Unreadable(key=key, problem=problem):
                self._live.set_problem(key.name, "GpuLedger", problem)

    def _take_pod(self, change: Change[PodSighting]) -> None:
        match change:
            case Added(stored) | Changed(stored):
                self._live.see_pod(stored.value)
                if self._binding is not None and stored.value.reservation is not None:
                    self._binding.take_pod(stored.value.reservation)
            case Deleted(_, uid):
                self._live.drop_pod(uid)
                if self._binding is not None:
                    self._binding.drop_pod(uid)
            case Unreadable(uid=uid, problem=problem):
                self._live.set_pod_unreadable(uid, problem)
            case Synced():
                if not self._live.pods_are_complete:
                    self._live.finish_listing_pods()

    def _take_new_pods(self, new: list[Stored[PodSighting]]) -> None:
        seen = [stored.value for stored in new]
        self._live.see_pods(seen)
        for each in seen if self._binding is not None else ():
            if self._binding is not None and each.reservation is not None:
                self._binding.take_pod(each.reservation)

    def _take_request(self, change: Change[BindRequest]) -> None:
        binding = self._binding
        match change:
            case Added(stored) | Changed(stored) if binding is not None:
                binding.take_request(stored)
            case Deleted(key) | Unreadable(key=key) if binding is not None:
                binding.drop_request(key.namespace, key.name)


def _all_to(take: Callable[[T], None]) -> Callable[[list[Stored[T]]], None]:
    """Return what hands on the content of each of many objects."""

    def take_all(new: list[Stored[T]]) -> None:
        for stored in new:
            take(stored.value)

    return take_all
