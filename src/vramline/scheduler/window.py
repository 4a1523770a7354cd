"""What a dashboard sees of a scheduler: the same views as the JSON API, one at a time. Reads only."""

from collections.abc import Iterable
from typing import Any

from vramline.explain.chronicle import Chronicle
from vramline.explain.decision import Explanation
from vramline.explain.history import DecisionRecord
from vramline.explain.pods import PodStory, PodView
from vramline.explain.whatif import WhatIfAnswer
from vramline.model.cluster import Cluster
from vramline.scheduler.journal import Journal
from vramline.scheduler.views import explain_ask, explain_now, tell_pod, view_pod
from vramline.scheduler.whatif import answer_what_if

__all__ = ["SchedulerWindow"]


class SchedulerWindow:
    """Satisfies `dashboard.window.Window`."""

    def __init__(self, cluster: Cluster, journal: Journal, chronicle: Chronicle | None = None) -> None:
        self._cluster = cluster
        self._journal = journal
        self.chronicle = chronicle
        """Knows what was before; None: nobody keeps it."""

    @property
    def cluster(self) -> Cluster:
        """The cluster itself, to be read."""
        return self._cluster

    def view(self, uid: str) -> PodView | None:
        """Return one pod, or one that is gone and still holds memory; None: there is neither."""
        return view_pod(self._cluster, self._journal, uid)

    def story(self, key: str, older: Iterable[DecisionRecord] = ()) -> PodStory | None:
        """Return everything about a pod (namespace/name); None: nothing is known.

        `older` are decisions about it that the chronicle has.
        """
        return tell_pod(self._cluster, self._journal, key, older)

    def what_if(self, document: dict[str, Any]) -> WhatIfAnswer:
        """Say where pods would go if they came now; raises `RequestError`."""
        return answer_what_if(self._cluster, document)

    def explain(self, uid: str) -> Explanation | None:
        """Say what a decision about a pending pod would say now; None: there is nothing to decide."""
        pod = self._cluster.pods.get(uid)
        return None if pod is None else explain_now(self._cluster, pod)

    def again(self, uid: str) -> Explanation | None:
        """Say what would be decided now if its like came; None: what it asked is forgotten."""
        pod = self._cluster.pods.get(uid)
        return None if pod is None or pod.ask is None else explain_ask(self._cluster, pod, pod.ask)

    def latest(self, uid: str) -> DecisionRecord | None:
        """Return the newest decision about a pod; None: there is none."""
        return self._journal.history.latest(uid)

    def newest(self, most: int) -> list[DecisionRecord]:
        """Return the newest decisions, newest first."""
        return self._journal.history.newest(most)

    def record(self, number: int) -> DecisionRecord | None:
        """Return one decision by its number; None: it is not kept any more, or never was."""
        return self._journal.history.get(number)
