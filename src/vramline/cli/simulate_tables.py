"""A run of the simulator for people: pods, why some of them wait, GPUs, and one line that sums up."""

from collections.abc import Iterable, Sequence

import typer
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vramline.cli.cluster_tables import gpus_table, shorten
from vramline.cli.output import get_console
from vramline.cli.text import printable
from vramline.explain.cards import CardState
from vramline.simulate.outcome import Status
from vramline.simulate.report import PodReport, RunReport

__all__ = ["print_report"]

_MOST_PODS = 200
"""Pods up to which every one is listed; above, only those that were not placed."""
_MOST_GPUS = 100
"""GPUs up to which every one is listed; above, they are summed up by model."""
_MOST_WARNINGS = 20
_WIDE = 112
_SHORT_UUID = 12
"""`GPU-` and eight digits, which tell cards apart in practice."""
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
    parts = [*_pods_part(report, console), *_reasons_part(report), *_gpus_part(report.gpus, console)]
    if report.gpus or report.pods:
        parts.append(Text(""))
    parts.append(_summary(report))
    with console.capture() as captured:
        console.print(Group(*parts))
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()), color=True)


def _pods_part(report: RunReport, console: Console) -> Iterable[RenderableType]:
    pods = report.pods
    if len(pods) > _MOST_PODS:
        pods = [pod for pod in pods if pod.status in _UNPLACED]
        yield Text(f"{len(report.pods) - len(pods):,} pods are placed; -o json lists them", style="dim")
    if pods:
        yield _pods_table(pods, report.gpus, console)
        yield Text("")


def _pods_table(pods: Sequence[PodReport], cards: Sequence[CardState], console: Console) -> Table:
    names = _short_names([card.uuid for card in cards], full=console.width >= _WIDE)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("STATUS", no_wrap=True)
    table.add_column("POD", overflow="ellipsis", no_wrap=True)
    table.add_column("NODE", overflow="ellipsis", no_wrap=True)
    table.add_column("GPU", overflow="ellipsis", no_wrap=True)
    table.add_column("MIB", justify="right", no_wrap=True)
    table.add_column("WHY", overflow="ellipsis", no_wrap=True)
    for pod in pods:
        table.add_row(
            Text(pod.status, style=_STYLES[pod.status]),
            printable(pod.pod),
            printable(pod.node or "–"),
            _cards_of(pod, names),
            _mib_of(pod),
            printable(_why(pod)),
        )
    return table


def _short_names(uuids: Sequence[str], *, full: bool) -> dict[str, str]:
    """Return how each card is called: shortened where all short names differ."""
    short = {uuid: uuid if len(uuid) <= _SHORT_UUID + 2 else f"{uuid[:_SHORT_UUID]}…" for uuid in uuids}
    return {} if full or len(set(short.values())) < len(short) else short


def _cards_of(pod: PodReport, names: dict[str, str]) -> str:
    if not pod.gpus:
        return "–"
    first = printable(names.get(pod.gpus[0].uuid, pod.gpus[0].uuid))
    return first if len(pod.gpus) == 1 else f"{first} +{len(pod.gpus) - 1}"


def _mib_of(pod: PodReport) -> str:
    """Write what the pod holds on each card, or what it asks of its nearest miss."""
    amounts = {gpu.mib for gpu in pod.gpus} or {gpu.ask_mib for node in pod.nodes[:1] for gpu in node.gpus}
    if not amounts:
        return "–"
    low, high = min(amounts), max(amounts)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _why(pod: PodReport) -> str:
    """Say in a word why a pod waits, or what to know about where it is."""
    if pod.reason is not None:
        return pod.reason
    if pod.warnings:
        return pod.warnings[0]
    return pod.message if pod.status is Status.RELEASING else ""


def _reasons_part(report: RunReport) -> Iterable[RenderableType]:
    """Say under the table why pods wait and what would help, once for all pods with the same story."""
    stories: dict[tuple[str, ...], list[str]] = {}
    for pod in report.pods:
        if pod.status in _UNPLACED:
            stories.setdefault((pod.status, pod.message, *pod.counterfactuals), []).append(pod.pod)
    for (status, message, *hints), pods in stories.items():
        head = Text(_some(pods), style=_STYLES[Status(status)])
        yield head
        yield Padding(Text(printable(message)), (0, 0, 0, 2))
        for hint in hints:
            yield Padding(Text(f"→ {printable(hint)}", style="green"), (0, 0, 0, 2))
    if stories:
        yield Text("")


def _some(pods: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(printable(pod) for pod in pods[:most])
    return shown if len(pods) <= most else f"{shown} and {len(pods) - most:,} more"


def _gpus_part(cards: Sequence[CardState], console: Console) -> Iterable[RenderableType]:
    if len(cards) > _MOST_GPUS:
        yield _models_table(cards)
    elif cards:
        plain = console.encoding.lower().replace("-", "") != "utf8"
        yield gpus_table(cards, width=min(console.width, 140), plain=plain)


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
