"""What is said while a node is chosen for a service, in the words of the autotuner's controller."""

import time
from collections.abc import Iterator, Sequence

from vramline.inference.gpu_info import NodeGPUSummary
from vramline.inference.reservation_client import Held
from vramline.units import format_mib

__all__ = ["describe_reservation", "describe_selection"]


def describe_selection(required: int, summary: NodeGPUSummary | None) -> list[str]:
    """Return the lines about a choice; without a node, that the scheduler decides."""
    lines = ["=== GPU Node Selection ===", f"Looking for node with {required} idle GPU(s)..."]
    if summary is None:
        lines.append("No suitable node; the scheduler decides")
    else:
        lines += [
            f"Selected node '{summary.node_name}' for deployment:",
            f"  - Allocatable GPUs: {summary.allocatable_gpus}/{summary.total_gpus}",
            f"  - Idle GPUs: {summary.idle_gpu_count}",
            f"  - Avg Utilization: {_percent(summary.avg_utilization)}",
            f"  - Avg Memory Usage: {_percent(summary.avg_memory_usage)}",
            f"✓ Selected node: {summary.node_name}",
        ]
    return [*lines, "=" * len(lines[0]), ""]


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f}%"


def describe_reservation(held: Sequence[Held]) -> Iterator[str]:
    """Yield a line for each pod whose memory is held."""
    for each in held:
        cards = len(each.gpus)
        until = time.strftime("%H:%M:%S", time.localtime(each.until))
        amount = format_mib(each.gpus[0].mib if each.gpus else 0)
        yield f"Reserved {amount} on {cards} GPU(s) of node '{each.node}' until {until}"
