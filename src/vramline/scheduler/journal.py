"""What was decided, and what looked different between filtering the nodes and binding the cards."""

from collections import OrderedDict
from typing import TypeVar

from vramline.explain.decision import NodeLine
from vramline.explain.history import DecisionRecord, History
from vramline.explain.trace import changed_since
from vramline.model.decision import Decision

__all__ = ["Journal"]

T = TypeVar("T")

_MOST_PODS = 1_000
"""How many pods are remembered between filter and bind."""


class Journal:
    """The history of decisions, with the last filter of each pod beside it."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.last_filter: Decision | None = None
        """What was decided when nodes were last filtered; prioritize follows at once."""
        self._filtered: OrderedDict[str, list[NodeLine]] = OrderedDict()
        self._changes: OrderedDict[str, list[str]] = OrderedDict()

    def filtered(self, pod_uid: str, nodes: list[NodeLine]) -> None:
        """Nodes were filtered for a pod; these are the best ones, or the nearest misses."""
        _remember(self._filtered, pod_uid, nodes)

    def bound(self, record: DecisionRecord) -> None:
        """Cards were bound for a pod, or could not be."""
        before = self._filtered.pop(record.pod_uid, None)
        if before is not None:
            _remember(self._changes, record.pod_uid, changed_since(before, record.explanation.nodes))
        self.history.add(record)

    def records_of(self, pod: str) -> list[DecisionRecord]:
        """Return what was decided about a pod (namespace/name), newest first."""
        return [record for record in self.history.all() if record.pod == pod]

    def changes_of(self, pod: str) -> list[str]:
        """Return what the newest decision saw differently than the filter before it.

        Without a filter, than the attempt before. For a pod that was placed, only on the node it went to.
        """
        records = self.records_of(pod)
        if not records:
            return []
        newest = records[0]
        if newest.pod_uid in self._changes:
            changes = self._changes[newest.pod_uid]
        elif len(records) > 1 and records[1].pod_uid == newest.pod_uid:
            changes = changed_since(records[1].explanation.nodes, newest.explanation.nodes)
        else:
            changes = []
        return [line for line in changes if newest.node is None or line.startswith(f"{newest.node}/")]


def _remember(kept: OrderedDict[str, T], key: str, value: T) -> None:
    kept[key] = value
    if len(kept) > _MOST_PODS:
        kept.popitem(last=False)
