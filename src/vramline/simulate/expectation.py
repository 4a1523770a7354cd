"""What a step of a story must come to, and the comparison with what it came to."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from vramline.simulate.idle import best_idle_node
from vramline.simulate.report import PodReport, RunReport
from vramline.simulate.reservations import ReservationFacts, reservation_on
from vramline.simulate.run import Run

__all__ = ["Expectation", "IdleQuestion", "PodExpectation", "compare"]


class PodExpectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must be true of one pod; what is not said is not checked."""

    status: str | UnsetType = UNSET
    node: str | UnsetType | None = UNSET
    reason: str | UnsetType | None = UNSET
    gpus: dict[str, int] | UnsetType = UNSET
    """MiB by UUID, exactly."""
    nominated: str | UnsetType | None = UNSET
    basis: str | UnsetType | None = UNSET
    message: list[str] = []
    """Texts that the message contains."""
    warnings: list[str] | UnsetType = UNSET
    """Texts, each in one of the warnings; an empty list: there are none."""
    counterfactuals: list[str] = []
    """Texts, each in one of the sentences."""


class IdleQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Which node is the best idle one, for so many GPUs and these thresholds."""

    gpus: int = 1
    utilization_percent: float = 30.0
    memory_percent: float = 50.0
    node: str | None


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a step must come to."""

    pods: dict[str, PodExpectation] = {}
    gpus: dict[str, dict[str, Any]] = {}
    """By UUID, any figures of `vramline simulate -o json`."""
    summary: dict[str, int] = {}
    problems: list[str] = []
    """Texts, each in one of the problems; an empty list (also when not given): there are none."""
    warnings: list[str] = []
    """Texts, each in one of the warnings about the input."""
    idle: list[IdleQuestion] = []
    reservations: dict[str, ReservationFacts] = {}
    """By node, all that its reservation pod has of the machine."""


def compare(
    expected: Expectation, run: Run, report: RunReport, *, platforms: str = ""
) -> tuple[tuple[str, ...], int]:
    """Return where a run differs from what was expected, and how many things were checked."""
    results = [*_checks(expected, run, report), *_check_reservations(expected, run, platforms)]
    return tuple(result for result in results if result), len(results)


def _checks(expected: Expectation, run: Run, report: RunReport) -> Iterator[str]:
    """Yield for every check an empty text, or what is different."""
    pods = {pod.pod: pod for pod in report.pods}
    for name, wanted in expected.pods.items():
        if name not in pods:
            yield f"{name} is not in the result"
        else:
            yield from _check_pod(wanted, pods[name])
    cards = {card.uuid: msgspec.to_builtins(card) for card in report.gpus}
    for uuid, figures in expected.gpus.items():
        for key, value in figures.items():
            yield _same(f"{uuid}.{key}", value, cards.get(uuid, {}).get(key, "missing"))
    for key, count in expected.summary.items():
        yield _same(f"summary.{key}", count, getattr(report.summary, key, "missing"))
    yield from _contain("problems", expected.problems, report.problems, exactly=not expected.problems)
    yield from _contain("warnings", expected.warnings, report.warnings)
    yield from (_check_idle(question, run) for question in expected.idle)


def _check_pod(wanted: PodExpectation, pod: PodReport) -> Iterator[str]:
    for key in ("status", "node", "reason", "nominated", "basis"):
        value = getattr(wanted, key)
        if value is not UNSET:
            yield _same(f"{pod.pod}.{key}", value, getattr(pod, key))
    if wanted.gpus is not UNSET:
        yield _same(f"{pod.pod}.gpus", wanted.gpus, {gpu.uuid: gpu.mib for gpu in pod.gpus})
    yield from _contain(f"{pod.pod}.message", wanted.message, [pod.message])
    if wanted.warnings is not UNSET:
        name = f"{pod.pod}.warnings"
        yield from _contain(name, wanted.warnings, pod.warnings, exactly=not wanted.warnings)
    yield from _contain(f"{pod.pod}.counterfactuals", wanted.counterfactuals, pod.counterfactuals)


def _check_reservations(expected: Expectation, run: Run, platforms: str) -> Iterator[str]:
    nodes = {node.name: node for node in run.cluster.fleet.nodes}
    for name, wanted in expected.reservations.items():
        found = reservation_on(nodes[name], platforms) if name in nodes else None
        yield _same(f"the reservation pod on {name}", wanted, found)


def _check_idle(question: IdleQuestion, run: Run) -> str:
    rules = msgspec.structs.replace(
        run.cluster.rules,
        idle_utilization_percent=question.utilization_percent,
        idle_memory_percent=question.memory_percent,
    )
    return _same("best idle node", question.node, best_idle_node(run.cluster, question.gpus, rules))


def _same(what: str, expected: object, found: object) -> str:
    return "" if expected == found else f"{what} is {found!r}, expected {expected!r}"


def _contain(
    what: str, expected: Sequence[str], found: Sequence[str], *, exactly: bool = False
) -> Iterator[str]:
    if exactly:
        yield "" if not found else f"{what}: {'; '.join(found)}; expected none"
    for text in expected:
        there = any(text in each for each in found)
        yield "" if there else f"{what}: nothing says {text!r}, but: {'; '.join(found) or 'nothing'}"
