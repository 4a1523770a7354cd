"""What was decided, and what looked different between filtering the nodes and binding the cards."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from vramline.explain.history import DecisionRecord, History
from vramline.explain.lines import NodeLine
from vramline.explain.trace import changed_since
from vramline.model.decision import Decision
from vramline.model.pod import Pod
from vramline.scheduler.checks import Checks
from vramline.wire.extender_v1 import AskedPod

__all__ = ["Journal"]

T = TypeVar("T")

Lines = Callable[[], list[NodeLine]]
"""What a filter saw, written down when somebody asks."""

_MOST_PODS = 1_000
"""How many pods are remembered between filter and bind."""


class Journal:
    """The history of decisions, with the last filter of each pod beside it."""

    def __init__(self, history: History, checks: Checks | None = None) -> None:
        self.history = history
        self.checks = checks or Checks()
        """Takes note of what the real-time check came to."""
        self.last_filter: Decision | None = None
        """What was decided when nodes were last filtered; prioritize follows at once."""
        self.last_pod: tuple[AskedPod, Pod] | None = None
        """The pod for which that was, as it came and as it was read."""
        self._filtered: OrderedDict[str, Lines] = OrderedDict()
        self._before: OrderedDict[str, Lines] = OrderedDict()

    def filtered(self, pod_uid: str, lines: Lines) -> None:
        """Nodes were filtered for a pod; `lines` are about the best ones, or the nearest misses."""
        _remember(self._filtered, pod_uid, lines)

    def bound(
        self,
        pod: str,
        pod_uid: str,
        write: Callable[[], DecisionRecord],
        case: Callable[[], object] | None = None,
    ) -> None:
        """Cards were bound for a pod."""
        self._keep_what_was_seen(pod_uid)
        self.history.add_later(pod, pod_uid, write, case)

    def not_bound(self, record: DecisionRecord, case: Callable[[], object] | None = None) -> None:
        """Cards were to be bound for a pod, and could not be."""
        self._keep_what_was_seen(record.pod_uid)
        self.history.add(record, case)

    def records_of(self, pod: str) -> list[DecisionRecord]:
        """Return what was decided about a pod (namespace/name), newest first."""
        return self.history.of_pod(pod)

    def changes_of(self, pod: str) -> list[str]:
        """Return what the newest decision saw differently than the filter before it.

        Without a filter, than the attempt before. For a pod that was placed, only on the node it went to.
        """
        records = self.records_of(pod)
        if not records:
            return []
        newest = records[0]
        if newest.pod_uid in self._before:
            changes = changed_since(self._before[newest.pod_uid](), newest.explanation.nodes)
        elif len(records) > 1 and records[1].pod_uid == newest.pod_uid:
            changes = changed_since(records[1].explanation.nodes, newest.explanation.nodes)
        else:
            changes = []
        return [line for line in changes if newest.node is None or line.startswith(f"{newest.node}/")]

    def _keep_what_was_seen(self, pod_uid: str) -> None:
        lines = self._filtered.pop(pod_uid, None)
        if lines is not None:
            _remember(self._before, pod_uid, lines)


def _remember(kept: OrderedDict[str, T], key: str, value: T) -> None:
    kept[key] = value
    if len(kept) > _MOST_PODS:
        kept.popitem(last=False)
