"""Nodes and reports of a snapshot, joined by name, checked against each other."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from vramline.errors import RequestError
from vramline.model.node import NodeProblem, ProblemKind
from vramline.wire.documents import Manifests
from vramline.wire.kubernetes import NodeObject, ObjectMeta
from vramline.wire.nodes import NodeReading, read_node

__all__ = ["Inventory", "read_inventory"]

_SUBJECT = re.compile(r"(?:Node|GpuReport) (?P<name>\S+)(?: \(|$)")


@dataclass(slots=True)
class Inventory:
    """Every node that could be read."""

    readings: list[NodeReading] = field(default_factory=list)
    problems: list[RequestError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_inventory(manifests: Manifests) -> Inventory:
    """Join nodes and reports. A report without a Node makes a node of its own, with a warning.

    A node whose object or report is malformed is set aside as a whole: half of what is known about
    it would be believed otherwise. A card that several nodes claim is no card of any of them.
    """
    found = Inventory()
    reports = {report.node: report for report in manifests.reports}
    aside = {name for problem in manifests.problems if (name := _node_of(problem))}
    named = {node.name for node in manifests.nodes}
    nodes = [node for node in manifests.nodes if node.name not in aside]
    alone = sorted(reports.keys() - named - aside)
    for node in (*nodes, *(NodeObject(metadata=ObjectMeta(name=name)) for name in alone)):
        try:
            found.readings.append(read_node(node, reports.get(node.name)))
        except RequestError as error:
            found.problems.append(error)
    found.readings = _without_shared_cards(found.readings)
    for reading in sorted(found.readings, key=lambda each: each.node.name):
        if reading.node.name in alone:
            found.warnings.append(
                f"GpuReport {reading.node.name}: there is no Node of this name; one is assumed that is ready"
                " and has room for everything but GPUs"
            )
        _tell(found, reading)
    return found


def _node_of(problem: RequestError) -> str | None:
    """Return the name of the node whose object a problem set aside; a second object of a name is not one."""
    match = _SUBJECT.match(problem.subject)
    return match["name"] if match and problem.field != "metadata.name" else None


def _without_shared_cards(readings: Iterable[NodeReading]) -> list[NodeReading]:
    """Take cards that several nodes list away from all of them, and say so on each of these nodes."""
    readings = list(readings)
    owners = Counter(gpu.uuid for reading in readings for gpu in reading.node.gpus)
    shared = {uuid for uuid, count in owners.items() if count > 1}
    return [_without(reading, shared) for reading in readings] if shared else readings


def _without(reading: NodeReading, shared: set[str]) -> NodeReading:
    node = reading.node
    mine = sorted(gpu.uuid for gpu in node.gpus if gpu.uuid in shared)
    if not mine:
        return reading
    problem = NodeProblem(
        ProblemKind.INVENTORY_CONFLICT,
        f"GPU {', '.join(mine)} is listed more than once, here or by other nodes",
    )
    left = tuple(gpu for gpu in node.gpus if gpu.uuid not in shared)
    return msgspec.structs.replace(
        reading,
        node=msgspec.structs.replace(node, gpus=left, problem=node.problem or problem),
        observations={uuid: seen for uuid, seen in reading.observations.items() if uuid not in shared},
    )


def _tell(found: Inventory, reading: NodeReading) -> None:
    subject = f"Node {reading.node.name}"
    problem = reading.node.problem
    found.warnings += [f"{subject}: {warning}" for warning in reading.warnings]
    if problem is None:
        return
    if problem.kind is ProblemKind.INVENTORY_CONFLICT:
        found.problems.append(
            RequestError(
                subject=subject,
                field="GPUs",
                problem=f"{problem.detail}; no GPU of this node is handed out",
                accepted="sources that agree on number, model and memory of the cards, each card on one node",
            )
        )
    else:
        found.warnings.append(f"{subject}: {problem.detail}; no GPU of this node is handed out")
