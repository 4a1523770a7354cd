"""A node's report as a table."""

import typer
from msgspec import UnsetType

from vramline.cli.output import print_table
from vramline.units import format_mib
from vramline.wire.report_v1alpha1 import GpuReport, ReportedGpu, ReportedProcess

__all__ = ["print_report"]

_COLUMNS = ["gpu", "uuid", "model", "total", "reserved", "used", "util", "temp", "health", "processes"]
_NUMBERS = ["gpu", "total", "reserved", "used", "util", "temp"]


def print_report(report: GpuReport) -> None:
    """Print one line a card, then what went wrong. What a card did not tell is `?`."""
    print_table(_COLUMNS, [_row(gpu) for gpu in report.gpus or ()], numbers=_NUMBERS)
    for gpu in report.gpus or ():
        if gpu.note:
            typer.echo(f"{gpu.uuid}: {gpu.note}", err=True)
    for note in report.notes:
        typer.echo(note, err=True)


def _row(gpu: ReportedGpu) -> list[str]:
    return [
        _number(gpu.index),
        gpu.uuid or "?",
        gpu.model or "?",
        format_mib(gpu.total_mib),
        _amount(gpu.reserved_mib),
        _amount(gpu.used_mib),
        _number(gpu.utilization_percent, " %"),
        _number(gpu.temperature_c, " °C"),
        gpu.health or "?",
        "?" if gpu.processes is None else ", ".join(map(_process, gpu.processes)) or "none",
    ]


def _process(process: ReportedProcess) -> str:
    owner = process.pod_uid
    whose = "not attributed" if isinstance(owner, UnsetType) else "nobody's" if owner is None else owner
    return f"{process.pid} ({_amount(process.used_mib)}, {whose})"


def _amount(mib: int | None) -> str:
    return "?" if mib is None else format_mib(mib)


def _number(value: int | None, unit: str = "") -> str:
    return "?" if value is None else f"{value}{unit}"
