"""Was a replay of the trace honest? Counted again from its log alone, with no code of the engine."""

from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from vramline.bench.openb import LogLine, OpenbReport
from vramline.bench.openb_trace import WHOLE, Trace, TracePod

__all__ = ["Violation", "check_log", "check_report"]


_ROUNDED = 0.0051
"""Figures are told in hundredths of a percent."""


class Violation(NamedTuple):
    """What a log must not show: a pod where it cannot be, or dropped although it had a place."""

    i: int
    pod: str
    what: str


def check_log(trace: Trace, log: Iterable[LogLine]) -> list[Violation]:
    """Return everything in a log that breaks the rules of the trace; a missing line is among it."""
    books = _Books(trace)
    found: list[Violation] = []
    lines = list(log)
    for number, place in enumerate(trace.order):
        pod = trace.pods[place]
        if number >= len(lines) or (lines[number].i, lines[number].pod) != (number, pod.name):
            return [*found, Violation(number, pod.name, "is not in its place in the log")]
        what = books.judge(pod, lines[number])
        if what:
            found.append(Violation(number, pod.name, what))
    if len(lines) > len(trace.order):
        found.append(Violation(len(trace.order), lines[len(trace.order)].pod, "came after all pods"))
    return found


def check_report(trace: Trace, log: Iterable[LogLine], report: OpenbReport) -> list[str]:
    """Return every figure of a report that the log does not bear out."""
    placed = [line.node is not None for line in log]
    pods = [trace.pods[place] for place in trace.order]
    capacity = WHOLE * sum(node.gpus for node in trace.nodes)
    wanted = np.cumsum([pod.gpus * pod.milli for pod in pods], dtype=np.int64)
    used = np.cumsum([pod.gpus * pod.milli * got for pod, got in zip(pods, placed, strict=True)])
    demand = (200 * wanted + capacity) // (2 * capacity)  # percent, halves rounded up
    wrong = []
    for level, told in report.alloc.items():
        there = used[demand == int(level)].tolist()
        true = float(Fraction(100 * sum(there), len(there) * capacity)) if there else None
        if (true is None) != (told is None) or abs((true or 0.0) - (told or 0.0)) > _ROUNDED:
            wrong.append(f"{told} % allocated at {level} % demand, but {true} % by the log")
    for kind, told_dropped in report.rejected.items():
        dropped = sum(_kind(pod) == kind and not got for pod, got in zip(pods, placed, strict=True))
        if dropped != told_dropped:
            wrong.append(f"{told_dropped} pods of kind {kind} dropped, but {dropped} by the log")
    if report.decisions != len(placed):
        wrong.append(f"{report.decisions} decisions, but {len(placed)} by the log")
    return wrong


def _kind(pod: TracePod) -> str:
    if pod.gpus != 1:
        return "multi" if pod.gpus else "cpu"
    return "one" if pod.milli == WHOLE else "share"


class _Books:
    """What is left of every node, pod by pod."""

    def __init__(self, trace: Trace) -> None:
        widest = max((node.gpus for node in trace.nodes), default=0)
        self._number = {node.name: number for number, node in enumerate(trace.nodes)}
        self._cpu = np.array([node.cpu_milli for node in trace.nodes])
        self._memory = np.array([node.memory_mib for node in trace.nodes])
        self._left = np.array([[WHOLE] * node.gpus + [-1] * (widest - node.gpus) for node in trace.nodes])
        self._models = [node.model.lower() for node in trace.nodes]
        self._allowed: dict[tuple[str, ...], np.ndarray[tuple[int], np.dtype[np.bool_]]] = {}

    def judge(self, pod: TracePod, line: LogLine) -> str:
        """Say what is wrong with what became of a pod, and take what it was given; empty: nothing."""
        possible = self._possible(pod)
        if line.node is None and line.gpus:
            return f"was dropped, but has cards {line.gpus}"
        if line.node is None:
            return f"was dropped, but {int(possible.sum())} nodes could take it" if possible.any() else ""
        number = self._number.get(line.node)
        if number is None:
            return f"is on {line.node}, which is no node"
        if not possible[number]:
            return f"is on {line.node}, which cannot take it"
        cards = self._left[number]
        if [len(line.gpus), len(set(line.gpus))] != [pod.gpus] * 2 or any(
            not 0 <= card < len(cards) or cards[card] < pod.milli for card in line.gpus
        ):
            return f"has cards {line.gpus} of {line.node}, where {cards.tolist()} was left"
        cards[line.gpus] -= pod.milli
        self._cpu[number] -= pod.cpu_milli
        self._memory[number] -= pod.memory_mib
        return ""

    def _possible(self, pod: TracePod) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        if pod.models not in self._allowed:
            self._allowed[pod.models] = np.array(
                [not pod.models or model in pod.models for model in self._models], dtype=np.bool_
            )
        enough = (self._left >= max(pod.milli, 1)).sum(axis=1) >= pod.gpus
        room = (self._cpu >= pod.cpu_milli) & (self._memory >= pod.memory_mib)
        possible: np.ndarray[tuple[int], np.dtype[np.bool_]] = room & enough & self._allowed[pod.models]
        return possible
