"""Bars, drawn here as SVG. Every part has its own pattern and its own words: colour is a help, no more."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from markupsafe import Markup, escape

from vramline.explain.cards import CardState
from vramline.model.claim import ClaimState

__all__ = ["LEGEND", "Part", "card_parts", "draw_bar", "draw_columns", "parts_of_sums"]

LEGEND = (
    ("held", "held", "promised to pods, or used by them beyond that"),
    ("releasing", "releasing", "pods that are ending: not free until proved"),
    ("unmanaged", "unmanaged", "on the card, but no pod's"),
    ("margin", "margin", "kept free on every card"),
    ("free", "free", "can be promised now"),
    ("unknown", "unknown", "free by the books; nobody has looked for too long"),
)
"""Kinds of parts with their words and what they mean."""

Namer = Callable[[str], str]
"""Names a pod (namespace/name), as far as the viewer may know it."""

_FILLS = {kind: f' fill="url(#p-{kind})"' for kind in ("releasing", "unmanaged", "margin", "unknown")}
"""Patterns, by kind of part."""
_LABEL_PERCENT = 7.0
"""How wide a part must be for its name to be written into it."""


class Part(NamedTuple):
    """One part of a bar."""

    kind: str
    mib: int
    label: str
    """Written into the part where there is room."""
    words: str
    """Said when somebody points at it."""


def card_parts(card: CardState, name: Namer) -> list[Part]:
    """Return what the memory of a card is divided into, from left to right; they add up to what is usable."""
    parts = [
        Part(
            "releasing" if claim.state is ClaimState.RELEASING else "held",
            claim.mib,
            name(claim.pod).rpartition("/")[2],
            f"{name(claim.pod)}: {claim.mib:,} MiB, {claim.state}",
        )
        for claim in sorted(card.claims, key=lambda claim: claim.state is ClaimState.RELEASING)
    ]
    beyond = card.held_mib - sum(claim.mib for claim in card.claims)
    if beyond > 0:
        parts.append(Part("held", beyond, "", f"{beyond:,} MiB used by pods beyond what they claimed"))
    return parts + list(_rest(card))


def _rest(card: CardState) -> Iterator[Part]:
    if card.unmanaged_mib:
        least = "at least " if card.unmanaged_is_lower_bound else ""
        words = f"{least}{card.unmanaged_mib:,} MiB that no pod owns"
        yield Part("unmanaged", card.unmanaged_mib, "unmanaged", words)
    yield Part("margin", card.margin_mib, "", f"{card.margin_mib:,} MiB margin, kept free")
    if card.free_mib > 0 and card.basis == "books":
        words = f"{card.free_mib:,} MiB by the books alone: nobody has looked for too long"
        yield Part("unknown", card.free_mib, "unknown", words)
    elif card.free_mib > 0:
        yield Part("free", card.free_mib, "", f"{card.free_mib:,} MiB free")


def parts_of_sums(sums: dict[str, int]) -> list[Part]:
    """Return the parts of a bar over many cards, by kind."""
    return [
        Part(kind, sums.get(kind, 0), word, f"{sums.get(kind, 0):,} MiB {word}") for kind, word, _ in LEGEND
    ]


def draw_bar(parts: Iterable[Part], whole: int, title: str) -> Markup:
    """Draw parts side by side; `whole` is what the full width stands for.

    Parts beyond it are cut off: a card that is over-committed says so in words.
    """
    drawn, at = [], 0.0
    for part in parts:
        width = min(100.0 * part.mib / max(whole, 1), 100.0 - at)
        if width > 0:
            drawn.append(_draw_part(part, at, width))
        at += width
    bar = f'<svg class="bar" role="img" aria-label="{escape(title)}">{"".join(drawn)}</svg>'
    return Markup(bar)  # noqa: S704 — every text in it was escaped; joining `Markup` costs ten times as much


def _draw_part(part: Part, at: float, width: float) -> str:
    has_label = part.label and width >= _LABEL_PERCENT
    label = f'<text x="6" y="50%">{escape(part.label)}</text>' if has_label else ""
    return (
        f'<svg x="{at:.3f}%" width="{width:.3f}%" height="100%"><title>{escape(part.words)}</title>'
        f'<rect class="part {part.kind}" width="100%" height="100%"{_FILLS.get(part.kind, "")}/>{label}</svg>'
    )


_WIDE, _GAP, _TALL = 7, 2, 26
"""Size of one card on the map, in pixels."""


def draw_columns(levels: Iterable[tuple[int, int, int, bool]], title: str) -> Markup:
    """Draw a node's cards as little columns: held, releasing and unmanaged from below, in 26ths of the card.

    The fourth of each says whether anybody knows.
    """
    drawn, x = [], 0
    for held, releasing, unmanaged, known in levels:
        drawn.append(_column("card" if known else "card blind", x, 0, _TALL))
        y = _TALL
        for kind, height in (("held", held), ("releasing", releasing), ("unmanaged", unmanaged)):
            if height:
                y -= height
                drawn.append(_column(f"part {kind}", x, max(y, 0), height, _FILLS.get(kind, "")))
        x += _WIDE + _GAP
    width = max(x - _GAP, _WIDE)
    return Markup(  # noqa: S704 — numbers, and a title that is escaped
        f'<svg width="{width}" height="{_TALL}" viewBox="0 0 {width} {_TALL}" role="img">'
        f"<title>{escape(title)}</title>{''.join(drawn)}</svg>"
    )


def _column(style: str, x: int, y: int, height: int, fill: str = "") -> str:
    return f'<rect class="{style}" x="{x}" y="{y}" width="{_WIDE}" height="{height}"{fill}/>'
