"""What the pages need of a scheduler. They read; there is nothing here that changes anything."""

from collections.abc import Iterable
from typing import Any, Protocol

from vramline.explain.chronicle import Chronicle
from vramline.explain.decision import Explanation
from vramline.explain.history import DecisionRecord
from vramline.explain.pods import PodStory, PodView
from vramline.explain.whatif import WhatIfAnswer
from vramline.model.cluster import Cluster

__all__ = ["Window"]


class Window(Protocol):
    """One scheduler, seen from outside."""

    @property
    def cluster(self) -> Cluster:
        """Its cluster, to be read."""
        ...

    @property
    def chronicle(self) -> Chronicle | None:
        """Who knows what was before; None: nobody keeps it."""
        ...

    def view(self, uid: str) -> PodView | None:
        """Return one pod, or one that is gone and still holds memory; None: there is neither."""
        ...

    def story(self, key: str, older: Iterable[DecisionRecord] = ()) -> PodStory | None:
        """Return everything about a pod (namespace/name); None: nothing is known.

        `older` are decisions about it that the chronicle has.
        """
        ...

    def what_if(self, document: dict[str, Any]) -> WhatIfAnswer:
        """Say where pods would go if they came now; raises `RequestError`."""
        ...

    def explain(self, uid: str) -> Explanation | None:
        """Say what a decision about a pending pod would say now; None: there is nothing to decide."""
        ...

    def again(self, uid: str) -> Explanation | None:
        """Say what would be decided now if its like came; None: what it asked is forgotten."""
        ...

    def latest(self, uid: str) -> DecisionRecord | None:
        """Return the newest decision about a pod; None: there is none."""
        ...

    def newest(self, most: int) -> list[DecisionRecord]:
        """Return the newest decisions, newest first."""
        ...

    def record(self, number: int) -> DecisionRecord | None:
        """Return one decision by its number; None: it is not kept any more, or never was."""
        ...
