"""Routes that are made when somebody first asks for something that no other route answers."""

from collections.abc import Callable, Iterable

from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

__all__ = ["LateRoutes", "list_routes"]

_CHOSEN = "vramline.late_route"


class LateRoutes(BaseRoute):
    """Stands for routes whose making takes a while: a scheduler decides first, people look later."""

    def __init__(self, make: Callable[[], Iterable[BaseRoute]]) -> None:
        self._make = make
        self._made: list[BaseRoute] | None = None

    @property
    def routes(self) -> list[BaseRoute]:
        """The routes themselves."""
        if self._made is None:
            self._made = list(self._make())
        return self._made

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match as the first of the routes that does, or as one that does but for the method."""
        best: tuple[Match, Scope] = (Match.NONE, {})
        for route in self.routes:
            match, child = route.matches(scope)
            if match.value > best[0].value:
                best = match, {**child, _CHOSEN: route}
            if match is Match.FULL:
                break
        return best

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the route answer that matched."""
        await scope[_CHOSEN].handle(scope, receive, send)


def list_routes(routes: Iterable[BaseRoute]) -> list[BaseRoute]:
    """Return all routes, those that are made late among them."""
    return [
        each for route in routes for each in (route.routes if isinstance(route, LateRoutes) else (route,))
    ]
