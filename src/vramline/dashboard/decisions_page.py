"""The page of decisions as they are made, and of one of them: what it saw, and what it would come to now."""

from collections.abc import AsyncIterator

from markupsafe import Markup

from vramline.dashboard.markup import Templates, id_of
from vramline.dashboard.pod_page import tell_decision
from vramline.dashboard.streams import Listing, Piece, Scene
from vramline.dashboard.viewers import NodeNames, Viewer
from vramline.dashboard.window import Window
from vramline.explain.decision import Explanation
from vramline.explain.history import DecisionRecord
from vramline.explain.trace import changed_since, lines_of_explanation
from vramline.model.reason import Reason

__all__ = ["DecisionsPage"]

_SHOWN = 50
_LOOKED_AT = 400
"""Newest decisions among which a viewer's own are looked for."""
_NODES = 12


class DecisionsPage:
    """Makes both pages."""

    def __init__(self, window: Window, templates: Templates) -> None:
        self._window = window
        self._templates = templates

    def make(self, viewer: Viewer) -> str:
        """Return the feed."""
        return self._templates.page(
            "decisions.html",
            viewer=viewer,
            now=self._window.cluster.now(),
            feed=self._wrap(self._rows(viewer)),
        )

    def follow(self, viewer: Viewer) -> Scene:
        """Return the feed as a scene."""

        async def scene() -> AsyncIterator[Piece | Listing]:
            yield Listing("feed", self._rows(viewer), self._wrap)

        return scene

    def make_one(self, viewer: Viewer, number: int) -> str | None:
        """Return the page of one decision; None: it is not kept, or not the viewer's to see."""
        record = self._window.record(number)
        if record is None or not viewer.sees_pod(record.pod):
            return None
        nodes = NodeNames(self._window.cluster.fleet)
        again = self._window.again(record.pod_uid)
        older, newer = self._neighbours(record)
        return self._templates.page(
            "decision.html",
            viewer=viewer,
            now=self._window.cluster.now(),
            record=record,
            told=tell_decision(record.explanation, viewer, nodes),
            counts=_count_reasons(record.explanation),
            again=None if again is None else tell_decision(again, viewer, nodes),
            changed=[] if again is None else changed_since(record.explanation.nodes, again.nodes),
            trace=lines_of_explanation(record.pod, record.explanation, record),
            older=older,
            newer=newer,
            most=_NODES,
        )

    def _rows(self, viewer: Viewer) -> list[Piece]:
        most = _SHOWN if viewer.namespaces is None else _LOOKED_AT
        records = [record for record in self._window.newest(most) if viewer.sees_pod(record.pod)]
        nodes = NodeNames(self._window.cluster.fleet)
        rows = []
        for record in records[:_SHOWN]:
            target = id_of("d", str(record.id))
            message = viewer.told(record.explanation.message, nodes)
            rows.append(Piece(target, self._templates.part("decision_row", record, target, message)))
        return rows

    def _wrap(self, rows: list[Piece]) -> Markup:
        return self._templates.part("feed", [row.html for row in rows])

    def _neighbours(self, record: DecisionRecord) -> tuple[int | None, int | None]:
        """Return the numbers of the decisions about the same pod before and after this one."""
        same = [each.id for each in self._window.newest(_LOOKED_AT) if each.pod_uid == record.pod_uid]
        older = max((number for number in same if number < record.id), default=None)
        newer = min((number for number in same if number > record.id), default=None)
        return older, newer


def _count_reasons(explanation: Explanation) -> list[tuple[Reason | str, int]]:
    """Count the nodes that are listed by what refused them, most frequent first."""
    counts: dict[Reason | str, int] = {}
    for node in explanation.nodes:
        word = node.reason or "fits"
        counts[word] = counts.get(word, 0) + 1
    return sorted(counts.items(), key=lambda item: -item[1])
