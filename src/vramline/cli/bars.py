"""Memory as a bar of characters that differ in shape, so that no colour is needed to read it."""

from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

__all__ = ["MemoryBar", "legend"]


class _Part(NamedTuple):
    name: str
    mark: str
    plain: str
    """The mark where the terminal knows ASCII only."""
    style: str


_PARTS = (
    _Part("held", "█", "#", "green"),
    _Part("releasing", "▒", "%", "cyan"),
    _Part("unmanaged", "×", "x", "magenta"),
    _Part("free", "·", ".", "dim"),
    _Part("margin", "│", "|", "dim"),
)
_BEYOND = "!"
"""Stands at the end of a bar that holds more than the card has."""


class MemoryBar:
    """One card's or node's usable memory, as wide as the column lets it."""

    def __init__(self, *, usable: int, held: int, releasing: int, unmanaged: int, margin: int) -> None:
        self._usable = usable
        self._amounts = (held - releasing, releasing, unmanaged)
        self._margin = margin

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.draw(options.max_width, plain=options.encoding.lower().replace("-", "") != "utf8")

    def __rich_measure__(self, _console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(8, options.max_width)

    def draw(self, width: int, *, plain: bool) -> Text:
        """Return the bar; whatever is not nothing gets at least one character."""
        if not self._usable:
            return Text("")
        counts = self._count(width)
        bar = Text(no_wrap=True)
        for part, count in zip(_PARTS, counts, strict=True):
            bar.append((part.plain if plain else part.mark) * count, style=part.style)
        if sum(self._amounts) > self._usable - self._margin:
            bar = bar[: width - 1].append(_BEYOND, style="bold red")
        return bar

    def _count(self, width: int) -> list[int]:
        """Share `width` characters out: taken parts first, then the margin, free memory gets the rest."""
        counts = [_share(amount, self._usable, width) for amount in self._amounts]
        margin = min(_share(self._margin, self._usable, width), width)
        while sum(counts) + margin > width:
            counts[counts.index(max(counts))] -= 1
        return [*counts, width - sum(counts) - margin, margin]


def legend(*, plain: bool) -> Text:
    """Say what the characters of a bar mean."""
    text = Text()
    for part in _PARTS:
        text.append(part.plain if plain else part.mark, style=part.style).append(
            f" {part.name}   ", style="dim"
        )
    text.rstrip()
    return text


def _share(amount: int, whole: int, width: int) -> int:
    return max(1, round(amount * width / whole)) if amount > 0 else 0
