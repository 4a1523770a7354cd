"""The page of one pod: the sentence, the arithmetic behind it, what would change it, what happened since."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import groupby

import msgspec
from markupsafe import Markup

from vramline.dashboard.cluster_page import draw_card
from vramline.dashboard.markup import Templates
from vramline.dashboard.streams import Listing, Piece, Scene
from vramline.dashboard.viewers import NodeNames, Viewer
from vramline.dashboard.window import Window
from vramline.explain.decision import Explanation
from vramline.explain.history import DecisionRecord
from vramline.explain.pods import PodStory
from vramline.explain.trace import lines_of_explanation

__all__ = ["PodPage", "tell_decision"]

_NODES = 8
"""How many nodes are shown with their arithmetic before the reader asks for more."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened to a pod."""

    at: float
    what: str
    text: str
    decision: int | None = None
    """The decision's number, where it was one."""


class PodPage:
    """Makes the page."""

    def __init__(self, window: Window, templates: Templates) -> None:
        self._window = window
        self._templates = templates

    async def make(self, viewer: Viewer, key: str) -> str | None:
        """Return the whole page; None: the viewer may not see such a pod, or there is none."""
        older = await self._older(key)
        story = self._window.story(key, older) if viewer.sees_pod(key) else None
        if story is None:
            return None
        return self._templates.page(
            "pod.html",
            viewer=viewer,
            now=self._window.cluster.now(),
            pod=story.pod,
            story=self._draw(story, viewer),
        )

    async def follow(self, viewer: Viewer, key: str) -> Scene:
        """Return the page as a scene."""
        older = await self._older(key)

        async def scene() -> AsyncIterator[Piece | Listing]:
            story = self._window.story(key, older) if viewer.sees_pod(key) else None
            drawn = Markup() if story is None else self._draw(story, viewer)
            yield Piece("story", drawn or self._templates.part("pod_gone", key))

        return scene

    async def _older(self, key: str) -> list[DecisionRecord]:
        chronicle = self._window.chronicle
        return [] if chronicle is None else await chronicle.decisions_of(key)

    def _draw(self, story: PodStory, viewer: Viewer) -> Markup:
        nodes = NodeNames(self._window.cluster.fleet)
        explanation = story.now or (story.decision.explanation if story.decision else None)
        told = None if explanation is None else tell_decision(explanation, viewer, nodes)
        trace: list[str] = []
        if explanation is not None:
            record = story.decision if story.now is None else None
            trace = lines_of_explanation(story.pod.pod, explanation, record)
        return self._templates.part(
            "story",
            story.pod,
            told,
            story.hint,
            [draw_card(self._templates, card, viewer, nodes) for card in story.cards],
            [viewer.told(line, nodes) for line in story.changed],
            [_told_moment(each, viewer, nodes) for each in self._life_of(story)],
            trace,
            None if story.pod.age_s is None else self._window.cluster.now() - story.pod.age_s,
            _NODES,
            story.pod.node or (story.decision.node if story.decision else None),
        )

    def _life_of(self, story: PodStory) -> list[Moment]:
        """Return what happened to a pod, newest first."""
        pod = self._window.cluster.pods.get(story.pod.uid)
        moments = list(_moments_of([*([story.decision] if story.decision else []), *story.history]))
        if pod is not None:
            for at, what, text in (
                (pod.created_at, "created", f"asks {story.pod.asks}" if story.pod.asks else ""),
                (pod.started_at, "started", "its containers began to run"),
                (pod.ended_at, "ended", "its last container ended; the memory is held until proved free"),
            ):
                if at is not None:
                    moments.append(Moment(at, what, text))
        return sorted(moments, key=lambda moment: -moment.at)


def tell_decision(explanation: Explanation, viewer: Viewer, nodes: NodeNames) -> Explanation:
    """Return an explanation without the names of pods that the viewer may not see."""
    if viewer.namespaces is None:
        return explanation
    return msgspec.structs.replace(
        explanation,
        message=viewer.told(explanation.message, nodes),
        warnings=[viewer.told(warning, nodes) for warning in explanation.warnings],
        counterfactuals=[
            msgspec.structs.replace(each, sentence=viewer.told(each.sentence, nodes))
            for each in explanation.counterfactuals
        ],
    )


def _moments_of(records: list[DecisionRecord]) -> Iterator[Moment]:
    """Yield a moment a decision; attempts that failed for the same reason one after the other are one."""
    for _, group in groupby(records, key=lambda record: (record.outcome, record.explanation.reason)):
        same = list(group)
        times = f" ({len(same)} times)" if len(same) > 1 else ""
        newest = same[0]
        yield Moment(newest.at, f"{newest.outcome}{times}", newest.explanation.message, newest.id)


def _told_moment(moment: Moment, viewer: Viewer, nodes: NodeNames) -> Moment:
    return Moment(moment.at, moment.what, viewer.told(moment.text, nodes), moment.decision)
