"""Runs of the simulator in one line: documents in, outcomes by pod out."""

from typing import Any

from kubernetes_builders import node_document, pod_document, report_document
from vramline.model.rules import Rules
from vramline.simulate.options import RunOptions
from vramline.simulate.outcome import Outcome
from vramline.simulate.run import Run, run_documents

__all__ = ["Document", "by_pod", "card", "node", "pod", "report", "run"]

Document = dict[str, Any]

report = report_document
"""A GpuReport of these cards on n1."""


def run(*documents: Document, rules: Rules | None = None, **options: Any) -> Run:
    """Run on these documents."""
    numbered = [(f"document {number}", document) for number, document in enumerate(documents, start=1)]
    return run_documents(numbered, RunOptions(rules=rules or Rules(), **options))


def by_pod(result: Run) -> dict[str, Outcome]:
    """What became of each pod, by its name alone."""
    return {outcome.pod.name: outcome for outcome in result.outcomes}


def node(name: str = "n1", mib: int = 32_600, *, cards: int = 1, **fields: Any) -> Document:
    """A node with so many equal cards, known from labels."""
    labels = {"gpu.count": str(cards), "gpu.memory": str(mib), **fields.pop("labels", {})}
    allocatable = {"nvidia.com/gpu": str(cards), **fields.pop("allocatable", {})}
    return node_document(name, labels=labels, allocatable=allocatable, **fields)


def card(uuid: str = "GPU-a", total: int = 32_600, **fields: Any) -> Document:
    """A card in a report that is seen and empty."""
    return {"uuid": uuid, "totalMiB": total, "usedMiB": 0, "processes": [], **fields}


def pod(name: str = "p", mib: int | None = 8_000, *, at: str | None = None, **fields: Any) -> Document:
    """A pod that asks for so many MiB (None: for no GPU), created at this time of 2026-01-01."""
    annotations = {**({} if mib is None else {"gpu-memory": str(mib)}), **fields.pop("annotations", {})}
    meta = {"name": name, **({} if at is None else {"creationTimestamp": f"2026-01-01T{at}Z"})}
    return pod_document(annotations=annotations, meta={**meta, **fields.pop("meta", {})}, **fields)
