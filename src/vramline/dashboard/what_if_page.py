"""The page that answers "what if these pods came now?". Tried on a copy of the books; nothing is changed."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vramline.dashboard.markup import Templates
from vramline.dashboard.pod_page import tell_decision
from vramline.dashboard.viewers import NodeNames, Viewer
from vramline.dashboard.window import Window
from vramline.errors import RequestError
from vramline.explain.whatif import WhatIfAnswer

__all__ = ["MAX_MANIFEST", "ReadText", "WhatIfPage"]

MAX_MANIFEST = 256 * 1024
"""Bytes of a manifest that are read."""

ReadText = Callable[[bytes, str], Iterator[tuple[str, object] | RequestError]]
"""Reads YAML or JSON: yields its documents, or what is wrong with them."""

_EXAMPLE = """\
apiVersion: v1
kind: Pod
metadata:
  name: my-model
  annotations:
    vramline.io/vram: 16Gi
spec:
  containers:
  - name: main
    image: example/model
"""


class WhatIfPage:
    """Makes the page."""

    def __init__(self, window: Window, templates: Templates, read_text: ReadText) -> None:
        self._window = window
        self._templates = templates
        self._read_text = read_text

    def make(self, viewer: Viewer, asked: Mapping[str, str]) -> tuple[int, str]:
        """Return status and page; with `mib` among what was asked, with the answer about equal pods."""
        if "mib" not in asked:
            return 200, self._page(viewer, asked, _EXAMPLE, None, "")
        return self._answer(viewer, asked, _EXAMPLE, lambda: _question_in(asked))

    def make_of_manifest(self, viewer: Viewer, text: str) -> tuple[int, str]:
        """Return status and page with the answer about a manifest that was pasted into the form."""
        text = text.replace("\r\n", "\n")
        return self._answer(viewer, {}, text, lambda: self._one_document(text))

    def _answer(
        self, viewer: Viewer, asked: Mapping[str, str], text: str, ask: Callable[[], dict[str, Any]]
    ) -> tuple[int, str]:
        try:
            answer = self._window.what_if(ask())
        except RequestError as error:
            return 400, self._page(viewer, asked, text, None, str(error))
        return 200, self._page(viewer, asked, text, answer, "")

    def _one_document(self, text: str) -> dict[str, Any]:
        found = list(self._read_text(text.encode(), "manifest"))
        for each in found:
            if isinstance(each, RequestError):
                raise each
        documents = [each[1] for each in found if not isinstance(each, RequestError)]
        if len(documents) != 1 or not isinstance(documents[0], dict):
            raise RequestError(
                subject="manifest",
                problem=f"has {len(documents)} documents" if len(documents) != 1 else "is not an object",
                accepted="one Pod, Deployment, StatefulSet, ReplicaSet or Job, as YAML or JSON",
            )
        return documents[0]

    def _page(
        self, viewer: Viewer, asked: Mapping[str, str], text: str, answer: WhatIfAnswer | None, problem: str
    ) -> str:
        blocked = None
        if answer is not None and answer.blocked is not None:
            nodes = NodeNames(self._window.cluster.fleet)
            blocked = tell_decision(answer.blocked.explanation, viewer, nodes)
        return self._templates.page(
            "what_if.html",
            viewer=viewer,
            now=self._window.cluster.now(),
            asked=asked,
            text=text,
            answer=answer,
            blocked=blocked,
            problem=problem,
        )


def _question_in(asked: Mapping[str, str]) -> dict[str, Any]:
    return {name: _number(asked, name, usual) for name, usual in (("pods", 1), ("mib", 0), ("gpus", 1))}


def _number(asked: Mapping[str, str], name: str, usual: int) -> int:
    text = asked.get(name) or str(usual)
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise RequestError(
            subject="what-if",
            field=name,
            value=text[:100],
            problem="is not a whole number",
            accepted="such as 8000",
        )
    return int(text)
