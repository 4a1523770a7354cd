"""Why a pod is where it is, or pending: sentence, arithmetic per card, what would change it, history."""

import time
from collections.abc import Iterator
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vramline.cli.cluster_tables import gpus_table, shorten
from vramline.cli.text import printable
from vramline.explain.decision import Alternative, Explanation
from vramline.explain.lines import CardLine, NodeLine
from vramline.explain.pods import PodStory, PodView
from vramline.model.reason import Reason

__all__ = ["STATUS_STYLES", "pod_story"]

_NODES = 3
"""How many nodes are shown with their arithmetic."""
_CARDS = 8
_SCORES = 3
"""How many of the best nodes are shown with what their scores are made of."""
_HISTORY = 8
STATUS_STYLES = {"Pending": "yellow", "Running": "green", "Bound": "green", "Releasing": "cyan"}


def pod_story(story: PodStory, *, width: int, plain: bool) -> RenderableType:
    """Return everything that is known about one pod, most important first."""
    explanation = story.now or (story.decision.explanation if story.decision else None)
    parts: list[RenderableType] = [_headline(story.pod)]
    if explanation is None:
        parts.append(_line("no decision about it is known", "dim"))
        return Group(*parts, *_cards(story, width=width, plain=plain))
    parts.append(_line(explanation.message))
    parts += [_line(story.hint)] if story.hint else []
    parts += [_line(f"! {warning}", "yellow") for warning in explanation.warnings]
    parts += _cards(story, width=width, plain=plain)
    parts += _arithmetic(story, explanation)
    parts += _section(
        f"scores by {explanation.policy}", [_say_score(a) for a in explanation.alternatives[:_SCORES]]
    )
    parts += _section("what would change that", [c.sentence for c in explanation.counterfactuals])
    parts += _section("what the last decision saw differently than the one before", story.changed)
    parts += _section("decisions", list(_history(story)))
    return Group(*parts)


def _cards(story: PodStory, *, width: int, plain: bool) -> list[RenderableType]:
    if not story.cards:
        return []
    table = gpus_table(story.cards, width=width - 2, plain=plain)
    return [_heading("its GPUs now"), Padding(table, (0, 0, 0, 2), expand=False)]


def _headline(pod: PodView) -> Text:
    text = Text(printable(pod.pod), style="bold").append("  ")
    text.append(pod.status, style=STATUS_STYLES.get(pod.status, ""))
    text.append(f" on {printable(pod.node)}" if pod.node else "", style="not bold")
    facts = [f"asks {pod.asks}" if pod.asks else "", f"priority {pod.priority}" if pod.priority else ""]
    facts.append("" if pod.age_s is None else f"age {pod.age_s:,.0f} s")
    text.append("".join(f"  {fact}" for fact in facts if fact), style="not bold")
    return text


def _heading(words: str) -> Text:
    return Text(f"\n{words}", style="bold")


def _line(text: str, style: str = "") -> RenderableType:
    return Padding(Text(printable(text), style=style, overflow="fold"), (0, 0, 0, 2), expand=False)


def _section(title: str, lines: list[str]) -> list[RenderableType]:
    return [_heading(title), *map(_line, lines)] if lines else []


def _say_score(node: Alternative) -> str:
    """Say what a score is made of: values times their weights."""
    terms = " + ".join(f"{term.term} {term.value:,.6g} × {term.weight:g}" for term in node.terms)
    return f"{node.node}: {node.score:,} = {terms}"


def _arithmetic(story: PodStory, explanation: Explanation) -> list[RenderableType]:
    """Show the sum of each card: of the node that was taken, or of the nearest misses."""
    taken = story.pod.node or (story.decision.node if story.decision else None)
    nodes = [node for node in explanation.nodes if node.node == taken] if taken else []
    nodes = nodes or [node for node in explanation.nodes if node.gpus][:_NODES]
    if not nodes:
        return []
    when = "when it was decided" if taken else "the nearest nodes"
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("")
    for name in ("USABLE", "−MARGIN", "−HELD", "−UNMANAGED", "=FREE", "ASK"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for node in nodes:
        _add_node(table, node)
    return [_heading(f"the arithmetic in MiB, {when}"), Padding(table, (0, 0, 0, 2), expand=False)]


def _add_node(table: Table, node: NodeLine) -> None:
    table.add_row(Text(printable(node.node), style="bold"), *[""] * 6, node.reason or "fits")
    for card in node.gpus[:_CARDS]:
        table.add_row(
            f" {shorten(card.uuid, 14)}",
            f"{card.usable_mib:,}",
            f"{card.margin_mib:,}",
            f"{card.held_mib:,}",
            "?" if card.unmanaged_mib is None else f"{card.unmanaged_mib:,}",
            f"{card.free_mib:,}",
            f"{card.ask_mib:,}",
            _verdict(card),
        )
    if len(node.gpus) > _CARDS:
        table.add_row(f" and {len(node.gpus) - _CARDS} more")


def _verdict(card: CardLine) -> str:
    by_memory = card.reason is Reason.INSUFFICIENT_VRAM
    words = f"short by {card.short_mib:,}" if by_memory else str(card.reason or "fits")
    parts = {
        "releasing": card.releasing_mib,
        "reserved in advance": card.reserved_mib,
        "requested as memory": card.requested_mib,
    }
    return "; ".join([words, *(f"{mib:,} {name}" for name, mib in parts.items() if mib)])


def _history(story: PodStory) -> Iterator[str]:
    """Yield a line a decision, newest first; attempts that failed for the same reason are one line."""
    records = [*([story.decision] if story.decision else []), *story.history]
    groups = [
        list(group)
        for _, group in groupby(records, key=lambda record: (record.outcome, record.explanation.reason))
    ]
    for group in groups[:_HISTORY]:
        newest, oldest = group[0], group[-1]
        times = f" ({len(group)} times since {_clock(oldest.at)})" if len(group) > 1 else ""
        yield f"{_clock(newest.at)} {newest.outcome}{times}: {newest.explanation.message}"
    if len(groups) > _HISTORY:
        yield "and older ones"


def _clock(at: float) -> str:
    """Write a time of today short, one of another day with its date."""
    then, now = time.localtime(at), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M:%S", then)
