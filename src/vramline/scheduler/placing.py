"""Nodes as their objects and reports say, put into the fleet without what pods hold there."""

from collections.abc import Mapping, Sequence

from vramline.errors import RequestError
from vramline.model.fleet import Fleet
from vramline.model.node import Node, NodePool, NodeProblem, ProblemKind
from vramline.model.observation import Observation
from vramline.scheduler.crowd import Crowd
from vramline.scheduler.owners import without_cards_of_others
from vramline.scheduler.sightings import Sightings
from vramline.wire.kubernetes import NodeObject
from vramline.wire.nodes import observations_in, read_node
from vramline.wire.report_v1alpha1 import GpuReport

__all__ = ["Placing"]

_Looks = Mapping[str, Observation]


class Placing:
    """Reads nodes, each by itself or many that are new together."""

    def __init__(self, fleet: Fleet, sightings: Sightings, crowd: Crowd, pool: NodePool | None) -> None:
        """`pool`: only these nodes exist; None: all."""
        self.objects: dict[str, NodeObject] = {}
        self.reports: dict[str, GpuReport] = {}
        self._fleet = fleet
        self._sightings = sightings
        self._crowd = crowd
        self._pool = pool

    def place(self, name: str) -> None:
        """Put a node into the fleet, or what became of it; one that does not exist for us is forgotten."""
        found = self._read(name)
        if found is None:
            return
        node, seen = without_cards_of_others(self._fleet, found[0]), found[1]
        known = self._fleet.node(name)
        if known is not None:
            self._fleet.clear_claims_of_node(name)
        if known != node:
            self._sightings.freed.add(name)
        self._fleet.set_node(node)
        self._crowd.set_node(node)
        (self._sightings.take_first if known is None else self._sightings.take_told)(name, seen)

    def place_all(self, names: Sequence[str]) -> None:
        """Do the same for many. Where all are new, those that share no card are put there together."""
        if any(self._fleet.node(name) is not None for name in names):
            for name in names:
                self.place(name)
            return
        new: list[tuple[Node, _Looks]] = []
        others: list[str] = []
        taken: set[str] = set()
        for name in names:
            found = self._read(name)
            if found is None:
                continue
            cards = [gpu.uuid for gpu in found[0].gpus]
            if taken.isdisjoint(cards) and self._fleet.columns.row_of.keys().isdisjoint(cards):
                taken.update(cards)
                new.append(found)
            else:
                others.append(name)
        self._add(new)
        for name in others:
            self.place(name)

    def forget(self, name: str) -> None:
        """Take a node out of the fleet, if it is there."""
        if self._fleet.node(name) is not None:
            self._fleet.clear_claims_of_node(name)
            self._fleet.remove_node(name)

    def _add(self, new: Sequence[tuple[Node, _Looks]]) -> None:
        self._fleet.add_nodes([node for node, _ in new])
        for node, seen in new:
            self._sightings.freed.add(node.name)
            self._crowd.set_node(node)
            self._sightings.take_first(node.name, seen)

    def _read(self, name: str) -> tuple[Node, _Looks] | None:
        """Return a node and what was seen on its cards; None: it is not there, or not for us."""
        document = self.objects.get(name)
        if document is None:
            return None
        labels = document.metadata.labels or {}
        if self._pool is not None and labels.get(self._pool.key) != self._pool.value:
            self.forget(name)
            return None
        report = self.reports.get(name)
        try:
            reading = read_node(document, report)
        except RequestError as error:
            problem = NodeProblem(ProblemKind.UNKNOWN_INVENTORY, str(error))
            return Node(name=name, problem=problem), observations_in(report) if report is not None else {}
        return reading.node, reading.observations
