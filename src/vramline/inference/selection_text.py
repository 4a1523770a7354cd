"""What is said while a node is chosen for a service, in the words of the autotuner's controller."""

from vramline.inference.gpu_info import NodeGPUSummary

__all__ = ["describe_selection"]


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
