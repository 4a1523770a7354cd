"""Who is on the nodes besides GPU claims, and what is usually asked for: for policies that think ahead."""

from collections.abc import Mapping

from vramline.model.fleet import Fleet
from vramline.model.host import HostColumns, requests_of
from vramline.model.mix import class_of
from vramline.model.node import Node
from vramline.model.pod import HostNeeds, Pod, PodPhase

__all__ = ["Crowd"]


class Crowd:
    """Keeps a fleet's mix of asks and what is left of its hosts in step with pods and nodes."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._hosts = fleet.hosts = HostColumns()
        fleet.thinks_in_steps = True
        self._asked: set[str] = set()
        self._stays: dict[str, tuple[str, HostNeeds]] = {}
        """By pod: the node it is on, and what it takes there."""
        self._on: dict[str, set[str]] = {}
        self._waiting: dict[str, HostNeeds] = {}
        """What GPU pods on no node request, where that is memory: a claim may be stored for them already."""
        self._gathers = False

    def gather(self) -> None:
        """Pods and nodes are about to come all at once: what is left of the hosts is counted after that."""
        self._gathers = True

    def count(self) -> None:
        """All have come: say what is left of the hosts."""
        self._gathers = False
        nodes = list(self._fleet.nodes)
        numbers = self._fleet.node_numbers([node.name for node in nodes])
        self._hosts.set_nodes(numbers, [(node.host, self._taken_on(node.name)) for node in nodes])

    def note(self, uid: str, pod: Pod | None) -> None:
        """A pod came or changed; None: it is gone, or cannot be read."""
        if uid in self._stays:
            self._leave(uid)
        self._waiting.pop(uid, None)
        if pod is None:
            self._asked.discard(uid)
            return
        if pod.ask is not None and uid not in self._asked:
            self._asked.add(uid)
            self._fleet.mix.see(class_of(pod.ask))
        if pod.ask is not None and pod.node is None and pod.host.memory_bytes:
            self._waiting[uid] = pod.host
        if pod.node is not None and pod.phase is not PodPhase.FINISHED:
            self._stays[uid] = (pod.node, pod.host)
            self._on.setdefault(pod.node, set()).add(uid)
            number = None if self._gathers else self._fleet.node_number(pod.node)
            if number is not None:
                self._hosts.take(number, pod.host)
                self.count_requests(pod.node)

    def meet(self, pods: Mapping[str, Pod]) -> None:
        """Pods came that were not known, after `gather`."""
        asked = []
        for uid, pod in pods.items():
            ask, node, host = pod.ask, pod.node, pod.host
            if ask is not None and uid not in self._asked:
                self._asked.add(uid)
                asked.append(class_of(ask))
            if node is None:
                if ask is not None and host.memory_bytes:
                    self._waiting[uid] = host
            elif pod.phase is not PodPhase.FINISHED:
                self._stays[uid] = node, host
                self._on.setdefault(node, set()).add(uid)
        self._fleet.mix.see_all(asked)

    def set_node(self, node: Node) -> None:
        """A node of the fleet came or changed."""
        number = None if self._gathers else self._fleet.node_number(node.name)
        if number is not None:
            self._hosts.set_node(number, node, self._taken_on(node.name))
            self.count_requests(node.name)

    def _taken_on(self, name: str) -> list[HostNeeds]:
        return [self._stays[uid][1] for uid in self._on.get(name, ())]

    def _leave(self, uid: str) -> None:
        name, needs = self._stays.pop(uid)
        self._on[name].discard(uid)
        number = None if self._gathers else self._fleet.node_number(name)
        if number is not None:
            self._hosts.give_back(number, needs)
            self.count_requests(name)

    def count_requests(self, name: str) -> None:
        """Where the GPU takes from the machine's memory, say what pods request of it.

        Those that are there, and those that were promised the GPU: their requests come with them.
        """
        node = self._fleet.node(name) if self._fleet.columns.has_unified else None
        if node is not None and node.is_unified:
            there = [(uid, self._stays[uid][1]) for uid in self._on.get(name, ())]
            claims = (claim for gpu in node.gpus for claim in self._fleet.ledger.of_card(gpu.uuid))
            promised = {claim.pod_uid for claim in claims} & self._waiting.keys()
            there += [(uid, self._waiting[uid]) for uid in promised]
            self._fleet.set_requests(name, requests_of(there))
