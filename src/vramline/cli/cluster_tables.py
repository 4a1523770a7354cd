"""GPUs and nodes as tables that fit the terminal: on a narrow one, columns go before numbers are cut."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vramline.cli.bars import MemoryBar, legend
from vramline.cli.text import printable
from vramline.explain.cards import CardState, NodeState

__all__ = ["gpus_table", "nodes_table", "shorten"]

_WIDE = 112
"""Columns from which on models and words in full are shown."""
_BAR = 40
"""The widest a bar gets."""
_SHORTEST = 8
"""Characters of a name that are left on the narrowest terminal."""


def gpus_table(cards: Sequence[CardState], *, width: int, plain: bool) -> RenderableType:
    """Return every card with its figures in MiB, what the bars mean, and what is odd about any card."""
    wide = width >= _WIDE
    names = [
        [card.node, card.uuid, *([card.model.removeprefix("NVIDIA ")] if wide else [])] for card in cards
    ]
    figures = [
        [
            *_figures_of(card),
            _number(card.used_mib),
            _free(card.free_mib, books=card.basis == "books"),
            f"{len(card.claims)}" + (f"/{card.slots}" if card.slots else ""),
        ]
        for card in cards
    ]
    table = _table(
        [*(("NODE", "GPU", "MODEL") if wide else ("NODE", "GPU"))],
        names,
        [*_figure_names(wide=wide), "USED", "FREE", "PODS"],
        figures,
        [_bar_of(card) for card in cards],
        width=width,
    )
    notes = [f"{card.node}/{card.uuid}: {note}" for card in cards for note in card.notes]
    footer = _footer(notes, books=any(card.basis == "books" for card in cards), plain=plain)
    return Group(table, *footer[:2], *_say_sources(cards), *footer[2:])


def _say_sources(cards: Sequence[CardState]) -> list[RenderableType]:
    """Say who looked at the cards, and how long ago at most."""
    oldest: dict[str, tuple[int, float]] = {}
    for card in cards:
        if card.source is not None and card.observed_age_s is not None:
            count, age_s = oldest.get(card.source, (0, 0.0))
            oldest[card.source] = count + 1, max(age_s, card.observed_age_s)
    told = [
        f"{source} {count}, at most {age_s:,.0f} s ago" for source, (count, age_s) in sorted(oldest.items())
    ]
    return [Text("seen  " + "; ".join(told), style="dim")] if told else []


def nodes_table(nodes: Sequence[NodeState], *, width: int, plain: bool) -> RenderableType:
    """Return every node with the sums over its cards; advertised devices stand in brackets."""
    wide = width >= _WIDE
    figures = [
        [
            f"{node.physical}" if node.advertised is None else f"{node.physical} ({node.advertised})",
            *_figures_of(node),
            _free(node.free_mib, books=bool(node.by_books)),
            _number(node.largest_free_mib),
            str(node.pods),
        ]
        for node in nodes
    ]
    table = _table(
        ["NODE", "STATUS"],
        [[node.node, _status(node)] for node in nodes],
        ["GPUS", *_figure_names(wide=wide), "FREE", "LARGEST" if wide else "LAR-\nGEST", "PODS"],
        figures,
        [_bar_of(node) for node in nodes],
        width=width,
    )
    notes = [f"{node.node}: {node.problem.kind}, {node.problem.detail}" for node in nodes if node.problem]
    return Group(table, *_footer(notes, books=any(node.by_books for node in nodes), plain=plain))


def shorten(text: str, most: int) -> str:
    """Cut the middle out of a long name: names that begin alike often end differently.

    >>> shorten("GPU-1", 10), shorten("pool-a100-spot-7e00", 10)
    ('GPU-1', 'pool-…7e00')
    """
    text = printable(text)
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"


def _table(
    name_heads: list[str],
    names: list[list[str]],
    number_heads: list[str],
    numbers: list[list[str | Text]],
    bars: list[MemoryBar],
    *,
    width: int,
) -> Table:
    """Lay out names, a bar and numbers. Numbers are never cut; names and the bar share what they leave."""
    gap = 2 if width >= _WIDE else 1
    taken = sum(_widths(number_heads, numbers)) + gap * (len(name_heads) + len(number_heads))
    room = max(width - taken, 0)
    widths: list[int] = []
    for place, wanted in enumerate(_widths(name_heads, names)):
        widths.append(min(wanted, max(_SHORTEST, (room - sum(widths)) // (len(name_heads) + 1 - place))))
    bar = min(_BAR, max(_SHORTEST // 2, room - sum(widths)))
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for head, each in zip(name_heads, widths, strict=True):
        table.add_column(head, no_wrap=True, width=each)
    table.add_column("MEMORY", no_wrap=True, width=bar)
    for head in number_heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row, bar_of_row, figures in zip(names, bars, numbers, strict=True):
        cells = [shorten(name, each) for name, each in zip(row, widths, strict=True)]
        table.add_row(*cells, bar_of_row, *figures)
    return table


def _widths(heads: list[str], rows: Sequence[Sequence[str | Text]]) -> list[int]:
    """Return the widest cell of each column, its heading among them."""
    columns = [[len(line) for line in head.splitlines()] for head in heads]
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            column.append(len(cell))
    return [max(column) for column in columns]


def _figure_names(*, wide: bool) -> list[str]:
    return ["TOTAL", "HELD", *(("RELEASING", "UNMANAGED") if wide else ("RELEA-\nSING", "UNMA-\nNAGED"))]


def _bar_of(state: CardState | NodeState) -> MemoryBar:
    return MemoryBar(
        usable=state.usable_mib,
        held=state.held_mib,
        releasing=state.releasing_mib,
        unmanaged=state.unmanaged_mib or 0,
        margin=state.margin_mib,
    )


def _figures_of(state: CardState | NodeState) -> list[str | Text]:
    bound = "≥" if isinstance(state, CardState) and state.unmanaged_is_lower_bound else ""
    return [
        _number(state.total_mib),
        _number(state.held_mib),
        _number(state.releasing_mib),
        f"{bound}{_number(state.unmanaged_mib)}",
    ]


def _number(mib: int | None) -> str:
    """Write an amount; what nobody could tell is a question mark, never 0."""
    return "?" if mib is None else f"{mib:,}".replace("-", "−")


def _free(mib: int, *, books: bool) -> Text:
    """Write what may be promised; by the books alone it carries a star."""
    style = "bold red" if mib < 0 else "bold"
    return Text(f"{_number(mib)}{'*' if books else ''}", style=style)


def _status(node: NodeState) -> str:
    words = [] if node.ready else ["not ready"]
    words += ["cordoned"] if node.cordoned else []
    words += [node.problem.kind.value] if node.problem else []
    return ", ".join(words) or "ready"


def _footer(notes: list[str], *, books: bool, plain: bool) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(""), Text("MiB   ", style="dim").append_text(legend(plain=plain))]
    if books:
        lines.append(Text("* by the books: no fresh observation", style="dim"))
    lines += [Text(f"! {printable(note)}", style="yellow", overflow="fold") for note in notes]
    return lines
