"""Open pages are kept up to date over server-sent events: what looks different is sent, nothing else."""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from dataclasses import dataclass, field

from markupsafe import Markup

__all__ = ["Listing", "Piece", "Scene", "follow"]

_BEAT_S = 0.5
"""How often a page is compared with what its browser has."""
_CLOCK_EVERY = 4
"""Beats between two messages that tell the time; without them a browser takes the stream for dead."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One element of a page, whole."""

    id: str
    html: Markup


@dataclass(frozen=True, slots=True)
class Listing:
    """An element with parts that change one by one; only other parts, or another order, replace it whole."""

    id: str
    parts: list[Piece]
    wrap: Callable[[list[Piece]], Markup]
    """Write the whole element from its parts."""


Scene = Callable[[], AsyncIterator[Piece | Listing]]
"""A page as it should look now, piece by piece; it gives way to others between pieces."""


async def follow(
    scene: Scene, now: Callable[[], float], *, beat_s: float = _BEAT_S, most: int | None = None
) -> AsyncIterator[bytes]:
    """Yield server-sent events that turn the page in a browser into the scene, for as long as it is read.

    `most` beats at most; None: without end.

    The first round sends everything: what has changed since the page was made is not known.
    """
    screen = _Screen()
    beat = 0
    while most is None or beat < most:
        changed = [each async for each in screen.compare(scene())]
        if changed:
            yield _message("".join(changed))
        if beat % _CLOCK_EVERY == 0:
            yield f"event: clock\ndata: {now():.3f}\n\n".encode()
        beat += 1
        await asyncio.sleep(beat_s)


@dataclass(slots=True)
class _Screen:
    """What the browser shows, as hashes by id."""

    shown: dict[str, int] = field(default_factory=dict)

    async def compare(self, scene: AsyncIterator[Piece | Listing]) -> AsyncIterator[str]:
        """Yield what has to be swapped in, and take it for shown."""
        before, self.shown = self.shown, {}
        async for each in scene:
            if isinstance(each, Piece):
                if self._differs(each.id, each.html, before):
                    yield _swap(each.id, each.html)
                continue
            whole = self._differs(each.id, tuple(part.id for part in each.parts), before)
            changed = [part for part in each.parts if self._differs(part.id, part.html, before)]
            if whole:
                yield _swap(each.id, each.wrap(each.parts))
            else:
                for part in changed:
                    yield _swap(part.id, part.html)

    def _differs(self, target: str, look: Hashable, before: dict[str, int]) -> bool:
        self.shown[target] = seen = hash(look)
        return before.get(target) != seen


def _swap(target: str, html: Markup) -> str:
    return f'<hx-partial hx-target="#{target}" hx-swap="outerMorph">{html}</hx-partial>'


def _message(html: str) -> bytes:
    return ("".join(f"data: {line}\n" for line in html.splitlines()) + "\n").encode()
