"""A run of the simulator for people: pods, why some of them wait, GPUs, and one line that sums up."""

from collections.abc import Iterable, Sequence

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vramline.cli.cluster_tables import gpus_table, shorten
from vramline.cli.output import get_console
from vramline.cli.text import printable
from vramline.explain.cards import CardState
from vramline.model.reason import WarningCode
from vramline.simulate.outcome import Status
from vramline.simulate.report import PodReport, RunReport

__all__ = ["print_report"]

_MOST_PODS = 200
"""Pods up to which every one is listed; above, only those that were not placed, up to as many."""
_MOST_GPUS = 100
"""GPUs up to which every one is listed; above, they are summed up by model."""
_MOST_STORIES = 20
"""Different reasons told; of more, those of the most pods."""
_MOST_NOTES = 20
_GAP = 2
"""Columns between columns."""
_STYLES = {
    Status.BOUND: "green",
    Status.PENDING: "bold yellow",
    Status.REJECTED: "bold red",
    Status.RUNNING: "",
    Status.RELEASING: "cyan",
}
_UNPLACED = (Status.PENDING, Status.REJECTED)


def print_report(report: RunReport) -> None:
    """Print a run as tables."""
    console = get_console()
    domain = _common_domain([card.node for card in report.gpus]) if console.is_terminal else ""
    if domain:
        report = _without_domain(report, domain)
    parts = [
        *_pods_part(report.pods, console.width),
        *_reasons_part(report.pods),
        *_notes_part(report.pods),
        *_gpus_part(report.gpus, console),
        _summary(report),
    ]
    with console.capture() as captured:
        console.print(Group(*parts))
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()), color=True)


def _common_domain(names: Sequence[str]) -> str:
    """Return what follows the first dot in the names of all nodes, where that is the same for all."""
    domains = {name.partition(".")[2] for name in names}
    return f".{domains.pop()}" if len(domains) == 1 and len(set(names)) > 1 and "" not in domains else ""


def _without_domain(report: RunReport, domain: str) -> RunReport:
    """Return the report with short names of nodes in its columns; sentences keep the long ones."""
    pods = [
        msgspec.structs.replace(pod, node=None if pod.node is None else pod.node.removesuffix(domain))
        for pod in report.pods
    ]
    gpus = [msgspec.structs.replace(card, node=card.node.removesuffix(domain)) for card in report.gpus]
    return msgspec.structs.replace(report, pods=pods, gpus=gpus)


def _pods_part(pods: Sequence[PodReport], width: int) -> Iterable[RenderableType]:
    shown = pods if len(pods) <= _MOST_PODS else [pod for pod in pods if pod.status in _UNPLACED]
    shown = shown[:_MOST_PODS]
    if shown:
        yield _pods_table(shown, width)
    if len(shown) < len(pods):
        yield Text(f"… and {len(pods) - len(shown):,} more pods; -o json lists all", style="dim")
    if pods:
        yield Text("")


def _pods_table(pods: Sequence[PodReport], width: int) -> Table:
    """Lay out pods. Status and numbers are never cut; the other columns share what they leave."""
    rows = [(printable(pod.pod), printable(pod.node or "–"), _cards_of(pod), _why(pod)) for pod in pods]
    amounts = [_mib_of(pod) for pod in pods]
    statuses = [pod.status for pod in pods]
    taken = max(map(len, ("STATUS", *statuses))) + max(map(len, ("MIB", *amounts))) + _GAP * 5
    names, nodes, cards, why = _share_out(rows, width - taken)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    table.add_column("STATUS", no_wrap=True)
    for head, each in (("POD", names), ("NODE", nodes), ("GPU", cards)):
        table.add_column(head, no_wrap=True, width=each)
    table.add_column("MIB", justify="right", no_wrap=True)
    table.add_column("WHY", no_wrap=True, overflow="ellipsis", width=why)
    for status, row, amount in zip(statuses, rows, amounts, strict=True):
        table.add_row(
            Text(status, style=_STYLES[status]),
            shorten(row[0], names),
            shorten(row[1], nodes),
            shorten(row[2], cards),
            amount,
            row[3],
        )
    return table


def _share_out(rows: Sequence[tuple[str, str, str, str]], room: int) -> list[int]:
    """Return the widths of pod, node, GPU and reason: what each needs, or at least what tells them apart."""
    needed = [max(len(row[place]) for row in rows) for place in range(4)]
    widths = [min(need, least) for need, least in zip(needed, (16, 8, 10, 16), strict=True)]
    for place in (3, 1, 0, 2):
        spare = max(room - sum(widths), 0)
        most = needed[place] if place != 3 else min(needed[3], max(widths[3], 20, room // 2))
        widths[place] += min(spare, most - widths[place])
    return [max(width, 4) for width in widths]


def _cards_of(pod: PodReport) -> str:
    if not pod.gpus:
        return "–"
    first = printable(pod.gpus[0].uuid)
    return first if len(pod.gpus) == 1 else f"{first} +{len(pod.gpus) - 1}"


def _mib_of(pod: PodReport) -> str:
    """Write what the pod holds on each card, or what it asks of its nearest miss."""
    amounts = {gpu.mib for gpu in pod.gpus} or {gpu.ask_mib for node in pod.nodes[:1] for gpu in node.gpus}
    if not amounts:
        return "–"
    low, high = min(amounts), max(amounts)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _why(pod: PodReport) -> str:
    """Say in a word why a pod waits, or what to know about where it is; sentences stand below the table."""
    if pod.reason is not None:
        return pod.reason
    if pod.status is Status.RELEASING:
        return "memory still held" if pod.gpus else "memory is free"
    codes = [code for code in map(_code_of, pod.warnings) if code]
    return codes[0] if codes else "note below" if pod.warnings else ""


def _code_of(warning: str) -> str:
    """Return the code that a warning begins with, where it has one."""
    code, colon, _ = warning.partition(": ")
    return code if colon and code in set(WarningCode) else ""


def _reasons_part(pods: Sequence[PodReport]) -> Iterable[RenderableType]:
    """Say under the table why pods wait and what would help, once for all pods with the same story.

    Why a pod was rejected is an error and stands on standard error.
    """
    stories: dict[tuple[str, ...], list[str]] = {}
    for pod in pods:
        if pod.status is Status.PENDING:
            stories.setdefault((pod.message, *pod.counterfactuals), []).append(pod.pod)
    shown = list(stories.items())
    if len(shown) > _MOST_STORIES:
        shown = sorted(shown, key=lambda story: -len(story[1]))[:_MOST_STORIES]
    for (message, *hints), names in shown:
        yield Text(_some(names), style=_STYLES[Status.PENDING])
        yield Padding(Text(printable(message)), (0, 0, 0, 2), expand=False)
        for hint in hints:
            yield Padding(Text(f"→ {printable(hint)}", style="green"), (0, 0, 0, 2), expand=False)
    if len(stories) > _MOST_STORIES:
        yield Text(f"… and {len(stories) - _MOST_STORIES:,} more reasons; -o json lists all", style="dim")
    if stories:
        yield Text("")


def _notes_part(pods: Sequence[PodReport]) -> Iterable[RenderableType]:
    """Say what else there is to know about pods; placements by the books show in the tables already."""
    notes: dict[str, list[str]] = {}
    for pod in pods:
        for warning in pod.warnings:
            if _code_of(warning) != WarningCode.PLACED_BY_BOOKS:
                notes.setdefault(warning, []).append(pod.pod)
    for warning, names in list(notes.items())[:_MOST_NOTES]:
        yield Text(f"! {_some(names)}: {printable(warning)}", style="yellow")
    if len(notes) > _MOST_NOTES:
        yield Text(f"! {len(notes) - _MOST_NOTES:,} more notes; -o json lists them", style="yellow")
    if notes:
        yield Text("")


def _some(pods: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(printable(pod) for pod in pods[:most])
    return shown if len(pods) <= most else f"{shown} and {len(pods) - most:,} more"


def _gpus_part(cards: Sequence[CardState], console: Console) -> Iterable[RenderableType]:
    if len(cards) > _MOST_GPUS:
        yield _models_table(cards)
    elif cards:
        plain = console.encoding.lower().replace("-", "") != "utf8"
        yield gpus_table(cards, width=console.width, plain=plain)
    if cards:
        yield Text("")


def _models_table(cards: Sequence[CardState]) -> Table:
    """Sum up a large fleet by model."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("MODEL", overflow="ellipsis", no_wrap=True)
    names = ("GPUS", "USABLE", "HELD", "RELEASING", "UNMANAGED", "FREE")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    models: dict[str, list[CardState]] = {}
    for card in cards:
        models.setdefault(card.model, []).append(card)
    for model, same in sorted(models.items()):
        unmanaged = [card.unmanaged_mib for card in same]
        told = [amount for amount in unmanaged if amount is not None]
        table.add_row(
            shorten(model or "unknown", 28),
            f"{len(same):,}",
            f"{sum(card.usable_mib for card in same):,}",
            f"{sum(card.held_mib for card in same):,}",
            f"{sum(card.releasing_mib for card in same):,}",
            f"{sum(told):,}" if len(told) == len(unmanaged) else f"≥{sum(told):,}" if told else "?",
            f"{sum(card.free_mib for card in same):,}",
        )
    return table


def _summary(report: RunReport) -> Text:
    counts = report.summary
    text = Text()
    text.append(f"{counts.bound:,} bound", style="green" if counts.bound else "")
    text.append(", ").append(f"{counts.pending:,} pending", style="bold yellow" if counts.pending else "")
    text.append(", ").append(f"{counts.rejected:,} rejected", style="bold red" if counts.rejected else "")
    before = [
        f"{count:,} {word}"
        for word in ("running", "releasing", "finished")
        if (count := getattr(counts, word))
    ]
    if before:
        text.append(f" ({', '.join(before)} before)")
    return text.append(f"; real-time check {report.mode}, policy {report.policy}")
