"""When a report says something new: enough to be written before its time."""

from vramline.units import Mib
from vramline.wire.report_v1alpha1 import GpuReport, ReportedGpu

__all__ = ["is_news"]


def is_news(before: GpuReport | None, now: GpuReport, *, threshold: Mib) -> bool:
    """Whether `now` differs from what was written by more than noise.

    News are: cards that came or went or are something else, health, memory in use that moved by the
    threshold or became known or unknown, other processes or owners. Utilisation and temperature never are.
    """
    if before is None:
        return True
    if _frame(before) != _frame(now):
        return True
    pairs = zip(before.gpus or (), now.gpus or (), strict=True)
    return any(_moved(old, new, threshold) for old, new in pairs)


def _frame(report: GpuReport) -> object:
    """Return all of a report that counts with every change. The words of a note may tell a time that runs."""
    cards = None if report.gpus is None else [_card(gpu) for gpu in report.gpus]
    return (report.platform, report.realtime_check, len(report.notes), cards)


def _card(gpu: ReportedGpu) -> object:
    processes = gpu.processes
    return (
        (gpu.uuid, gpu.index, gpu.model, gpu.total_mib, gpu.reserved_mib, gpu.unified, gpu.numa, gpu.mig),
        gpu.link_group,
        (gpu.health, gpu.replicas, gpu.memory_source, gpu.note is None, gpu.used_mib is None),
        None if processes is None else {(each.pid, each.pod_uid) for each in processes},
    )


def _moved(old: ReportedGpu, new: ReportedGpu, threshold: Mib) -> bool:
    if old.used_mib is None or new.used_mib is None:
        return False
    if abs(new.used_mib - old.used_mib) >= threshold:
        return True
    used = {each.pid: each.used_mib for each in old.processes or ()}
    return any(
        (was := used.get(each.pid)) is not None
        and each.used_mib is not None
        and abs(each.used_mib - was) >= threshold
        for each in new.processes or ()
    )
