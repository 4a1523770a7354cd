"""The page of all pods, those that wait first, each with its reason and what would change that."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass

from markupsafe import Markup

from vramline.dashboard.markup import Templates, id_of
from vramline.dashboard.queries import PodQuery, PodStatus
from vramline.dashboard.streams import Listing, Piece, Scene
from vramline.dashboard.viewers import NodeNames, Viewer
from vramline.dashboard.window import Window
from vramline.explain.decision import Explanation
from vramline.explain.pods import PodView
from vramline.model.pod import PodPhase

__all__ = ["PODS_ON_A_PAGE", "Advice", "PodsPage"]

PODS_ON_A_PAGE = 50
_ORDER = {PodPhase.PENDING: 0, PodPhase.RELEASING: 1, PodPhase.BOUND: 2, PodPhase.RUNNING: 3}
_ADVICE_KEPT_S = 3.0
_MOST_ADVICE = 500
_AT_ONCE = 8
"""Pods that are written before others get their turn."""


class Advice:
    """What a decision would say now about pods that wait: kept for a moment, because finding out costs."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._kept: OrderedDict[str, tuple[float, Explanation | None]] = OrderedDict()

    def about(self, uid: str) -> Explanation | None:
        """Return what would be said about a pending pod; None: it is not pending, or asks for nothing."""
        now = self._window.cluster.now()
        at, told = self._kept.get(uid, (float("-inf"), None))
        if not 0 <= now - at < _ADVICE_KEPT_S:
            told = self._window.explain(uid)
            self._kept[uid] = now, told
            self._kept.move_to_end(uid)
            if len(self._kept) > _MOST_ADVICE:
                self._kept.popitem(last=False)
        return told


@dataclass(frozen=True, slots=True)
class PodChoice:
    """The pods that a query means, and those of them on the page."""

    uids: list[str]
    matching: int
    page: int
    pages: int
    counts: dict[str, int]
    """Of all pods the viewer may see, by status."""
    hidden: dict[str, int]
    """Of the others."""


@dataclass(frozen=True, slots=True)
class _Line:
    """What is sorted and counted: a pod, or what is left of one."""

    uid: str
    key: str
    phase: PodPhase
    priority: int
    created_at: float

    def rank(self) -> tuple[int, int, float, str]:
        """Those who wait first, important ones first, then who waits longest."""
        return _ORDER.get(self.phase, 9), -self.priority, self.created_at, self.key


class PodsPage:
    """Makes the page."""

    def __init__(self, window: Window, templates: Templates, advice: Advice) -> None:
        self._window = window
        self._templates = templates
        self._advice = advice

    def make(self, viewer: Viewer, query: PodQuery) -> str:
        """Return the whole page."""
        choice = self._choose(viewer, query)
        rows = [self._draw(uid, viewer) for uid in choice.uids]
        pods = self._window.cluster.pods.values()
        return self._templates.page(
            "pods.html",
            viewer=viewer,
            now=self._window.cluster.now(),
            query=query,
            summary=self._templates.part("pod_summary", choice, query),
            rows=self._wrap(rows),
            pager=self._templates.part("pod_pager", query, choice),
            namespaces=sorted({pod.namespace for pod in pods if pod.ask and viewer.sees(pod.namespace)}),
            statuses=[status for status in PodStatus if status],
        )

    def follow(self, viewer: Viewer, query: PodQuery) -> Scene:
        """Return the page as a scene."""

        async def scene() -> AsyncIterator[Piece | Listing]:
            choice = self._choose(viewer, query)
            yield Piece("summary", self._templates.part("pod_summary", choice, query))
            rows = []
            for number, uid in enumerate(choice.uids):
                rows.append(self._draw(uid, viewer))
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            yield Listing("pods", rows, self._wrap)
            yield Piece("pager", self._templates.part("pod_pager", query, choice))

        return scene

    def _choose(self, viewer: Viewer, query: PodQuery) -> PodChoice:
        lines = list(_lines_of(self._window))
        seen = [line for line in lines if viewer.sees_pod(line.key)]
        found = sorted((line for line in seen if _matches(line, query)), key=_Line.rank)
        pages = max(1, -(-len(found) // PODS_ON_A_PAGE))
        page = min(query.page, pages)
        shown = found[(page - 1) * PODS_ON_A_PAGE : page * PODS_ON_A_PAGE]
        counts, everything = (Counter(line.phase.value for line in each) for each in (seen, lines))
        return PodChoice(
            uids=[line.uid for line in shown],
            matching=len(found),
            page=page,
            pages=pages,
            counts=dict(counts),
            hidden=dict(everything - counts),
        )

    def _draw(self, uid: str, viewer: Viewer) -> Piece:
        target = id_of("p", uid)
        view = self._window.view(uid)
        if view is None:  # it left while the page was made
            return Piece(target, self._templates.part("pod_left", target))
        told = self._advice.about(uid) if view.status == PodPhase.PENDING else None
        return Piece(target, self._draw_view(target, view, told, viewer))

    def _draw_view(self, target: str, view: PodView, told: Explanation | None, viewer: Viewer) -> Markup:
        nodes = NodeNames(self._window.cluster.fleet)
        message = view.message or ("" if told is None else told.message)
        helps = [] if told is None else [each.sentence for each in told.counterfactuals]
        return self._templates.part(
            "pod_row",
            view,
            target,
            None if view.age_s is None else self._window.cluster.now() - view.age_s,
            viewer.told(message, nodes),
            view.reason or (None if told is None else told.reason),
            [viewer.told(each, nodes) for each in helps],
        )

    def _wrap(self, rows: list[Piece]) -> Markup:
        return self._templates.part("pod_list", [row.html for row in rows])


def _lines_of(window: Window) -> list[_Line]:
    cluster = window.cluster
    lines = [
        _Line(pod.uid, pod.key, pod.phase, pod.priority, pod.created_at or 0.0)
        for pod in cluster.pods.values()
        if pod.ask is not None and pod.phase is not PodPhase.FINISHED
    ]
    ended = {claim.pod_uid: claim.pod for claim in cluster.fleet.ledger if claim.pod_uid not in cluster.pods}
    return lines + [_Line(uid, key, PodPhase.RELEASING, 0, 0.0) for uid, key in ended.items()]


def _matches(line: _Line, query: PodQuery) -> bool:
    return (
        (not query.status or line.phase.value == query.status)
        and (not query.namespace or line.key.startswith(f"{query.namespace}/"))
        and (not query.name or query.name in line.key)
    )
