"""Who looks, and what of it is theirs to see."""

import re
from collections.abc import Container, Iterable
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vramline.model.fleet import Fleet

__all__ = ["EVERYONE", "Gate", "NodeNames", "OpenGate", "Viewer"]

_NAMED = re.compile(r"(?<![\w./-])([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)/([A-Za-z0-9](?:[\w.-]*\w)?)")
"""A pod or a card as sentences spell them: namespace/name, node/UUID."""
_SOMEBODY = "a pod of another namespace"


class NodeNames:
    """The names of a fleet's nodes, to be looked up."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._fleet.node(name) is not None


class Viewer(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who looks at the pages."""

    name: str = ""
    namespaces: frozenset[str] | None = None
    """Whose pods may be seen by name; None: everybody's."""
    is_known: bool = False
    """Whether it was asked who it is; then it is asked again now and then."""

    def sees(self, namespace: str) -> bool:
        """Whether the pods of a namespace may be shown by name."""
        return self.namespaces is None or namespace in self.namespaces

    def sees_pod(self, key: str) -> bool:
        """The same for a pod, namespace/name."""
        return self.sees(key.partition("/")[0])

    def pod(self, key: str) -> str:
        """Name a pod, as far as that may be done."""
        return key if self.sees_pod(key) else _SOMEBODY

    def told(self, text: str, nodes: Container[str]) -> str:
        """Return a sentence without the names of pods that are not to be seen.

        What looks like namespace/name stays only where the first part is a namespace that may be seen, or a
        node: a namespace that nobody has heard of is not shown either.

        >>> viewer = Viewer(namespaces=frozenset({"mine"}))
        >>> viewer.told("fits on n1 once other/llm-0 is gone; n1/GPU-7 is full of mine/a", {"n1"})
        'fits on n1 once a pod of another namespace is gone; n1/GPU-7 is full of mine/a'
        """
        if self.namespaces is None:
            return text
        shown = self.namespaces

        def judge(found: re.Match[str]) -> str:
            return found[0] if found[1] in shown or found[1] in nodes else _SOMEBODY

        return _NAMED.sub(judge, text)


EVERYONE = Viewer()
"""Whoever can reach a loopback address may see everything."""


class Gate(Protocol):
    """Decides who comes in."""

    async def admit(self, request: Request) -> Viewer | Response:
        """Return who it is, or what to answer instead of the page."""
        ...

    def routes(self) -> Iterable[BaseRoute]:
        """Return the addresses at which people say who they are; none where nobody asks."""
        ...


class OpenGate:
    """Lets everybody in who is on this machine.

    A page of a foreign site could have its own name resolve to 127.0.0.1 and then read everything; a browser
    tells in `Host` by which name it came, so foreign names are turned away.
    """

    def routes(self) -> Iterable[BaseRoute]:
        """Nobody is asked."""
        return ()

    async def admit(self, request: Request) -> Viewer | Response:
        """Return the viewer who sees everything, unless the address has a foreign name."""
        host = request.headers.get("host", "")
        name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
        if name == "localhost" or re.fullmatch(r"127\.\d+\.\d+\.\d+|\[::1\]", name):
            return EVERYONE
        return Response(
            "This address is for this machine alone: open it as 127.0.0.1 or localhost.\n",
            status_code=421,
            media_type="text/plain",
        )
