"""From parsed YAML or JSON documents to typed objects. One bad document does not stop the others."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from vramline.errors import RequestError
from vramline.wire.decoding import convert_document, shorten
from vramline.wire.identity import key_of, namespace_of
from vramline.wire.kubernetes import NodeObject, PodObject, WorkloadObject
from vramline.wire.ledger_v1alpha1 import GpuLedger, decode_ledger
from vramline.wire.moments import list_moments
from vramline.wire.report_v1alpha1 import GpuReport, decode_report
from vramline.wire.workloads import count_pods, expand_workloads

__all__ = ["Manifests", "read_documents", "read_now"]

_Named = TypeVar("_Named", PodObject, WorkloadObject)

_NAME = re.compile(r"[^\s/]{1,253}")
_WORD = re.compile(r"\S{1,253}")
_GROUPS = {
    "Node": "",
    "Pod": "",
    "Deployment": "apps",
    "StatefulSet": "apps",
    "ReplicaSet": "apps",
    "Job": "batch",
}
"""API group of each foreign kind that is read; a kind of the same name in another group is another kind."""


class Manifests(msgspec.Struct, kw_only=True):
    """Everything that was in the input, each list in the order of appearance."""

    nodes: list[NodeObject] = []
    reports: list[GpuReport] = []
    ledgers: list[GpuLedger] = []
    pods: list[PodObject] = []
    """Workloads are replaced by their pods."""
    skipped: list[tuple[str, str]] = []
    """Where an object of a kind that is not read stood, and its kind."""
    problems: list[RequestError] = []


def read_documents(documents: Iterable[tuple[str, object]]) -> Manifests:
    """Sort parsed documents into typed objects.

    Each document comes with where it stood, such as `file.yaml, document 3`; an empty one is nothing.
    """
    reading = _Reading()
    for where, document in documents:
        try:
            for place, each in _unpack(where, document):
                reading.take(place, each)
        except RequestError as error:
            reading.manifests.problems.append(error)
    return reading.finish()


def read_now(manifests: Manifests) -> float:
    """Return the newest time in the input, deletion times apart; 0 where there is none."""
    moments = list_moments(manifests.nodes, manifests.pods)
    seen = [report.observed_at for report in manifests.reports if report.observed_at is not None]
    return max((*moments, *seen), default=0.0)


class _Reading:
    """One pass over an input: what was found, and under which names."""

    def __init__(self) -> None:
        self.manifests = Manifests()
        self._places: dict[tuple[str, str], str] = {}
        self._found: list[PodObject | WorkloadObject] = []
        self._generated: dict[str, int] = {}

    def take(self, where: str, document: object) -> None:
        """Read one object, or note what is wrong with it."""
        try:
            self._take(where, _as_mapping(where, document))
        except RequestError as error:
            self.manifests.problems.append(error)

    def finish(self) -> Manifests:
        """Expand the workloads, now that all names are known."""
        self.manifests.pods = list(expand_workloads(self._found))
        return self.manifests

    def _take(self, where: str, document: dict[str, Any]) -> None:
        kind, group = _identify(where, document)
        subject = _name_subject(kind, document, where)
        if kind == "GpuReport":
            report = decode_report(document, subject=subject)
            self._enter(kind, report.node, where)
            self.manifests.reports.append(report)
        elif kind == "GpuLedger":
            ledger = decode_ledger(document, subject=subject)
            self._enter(kind, ledger.node, where)
            self.manifests.ledgers.append(ledger)
        elif _GROUPS.get(kind) != group:
            other = f" of {document['apiVersion']}" if kind in _GROUPS else ""
            self.manifests.skipped.append((where, kind + other))
        elif kind == "Node":
            node = convert_document(document, NodeObject, subject=subject)
            self._enter(kind, node.name, where)
            self.manifests.nodes.append(node)
        elif kind == "Pod":
            pod = self._named(convert_document(document, PodObject, subject=subject))
            self._enter(kind, key_of(pod.metadata), where)
            self._found.append(pod)
        else:
            workload = self._named(convert_document(document, WorkloadObject, subject=subject))
            count_pods(workload)
            self._enter(kind, key_of(workload.metadata), where)
            self._found.append(workload)

    def _named(self, each: _Named) -> _Named:
        """Give an object that only has a generateName the next name of that series."""
        meta = each.metadata
        if meta.name or not meta.generate_name:
            return each
        series = f"{namespace_of(meta)}/{meta.generate_name}"
        number = self._generated.get(series, 0)
        self._generated[series] = number + 1
        name = f"{meta.generate_name}{number}"
        return msgspec.structs.replace(each, metadata=msgspec.structs.replace(meta, name=name))

    def _enter(self, kind: str, name: str, where: str) -> None:
        """Refuse a missing, unusable or second name."""
        namespace, _, last = name.rpartition("/")
        if not last:
            raise RequestError(
                subject=f"{kind} ({where})", field="metadata.name", problem="is missing", accepted="a name"
            )
        if not _NAME.fullmatch(last) or (namespace and not _NAME.fullmatch(namespace)):
            raise RequestError(
                subject=f"{kind} ({where})",
                field="metadata.name",
                value=name,
                problem="is not a name",
                accepted="up to 253 characters without white space or slash",
            )
        first = self._places.get((kind, name))
        if first is not None:
            raise RequestError(
                subject=f"{kind} {name} ({where})",
                field="metadata.name",
                value=name,
                problem=f"is taken by the {kind} in {first}; this one is set aside",
                accepted="a name of its own",
            )
        self._places[kind, name] = where


def _unpack(where: str, document: object) -> Iterator[tuple[str, object]]:
    """Yield a document, or the items of a list with what the list says about them."""
    if document is None:
        return
    mapping = _as_mapping(where, document)
    kind = mapping.get("kind")
    if not isinstance(kind, str) or not kind.endswith("List") or (kind != "List" and "items" not in mapping):
        yield where, mapping
        return
    items = mapping.get("items")
    if not isinstance(items, list | None):
        raise RequestError(subject=where, field="items", problem="must be a list")
    for position, item in enumerate(items or ()):
        place = f"{where}, item {position + 1}"
        if kind != "List" and isinstance(item, dict):
            yield place, {"apiVersion": mapping.get("apiVersion"), "kind": kind[:-4], **item}
        else:
            yield place, item


def _as_mapping(where: str, document: object) -> dict[str, Any]:
    if isinstance(document, dict):
        return document
    raise RequestError(
        subject=where,
        value=shorten(document),
        problem="is not a Kubernetes object",
        accepted="a mapping with apiVersion, kind and metadata",
    )


def _identify(where: str, document: dict[str, Any]) -> tuple[str, str]:
    """Return kind and API group."""
    found = {}
    for field in ("apiVersion", "kind"):
        value = document.get(field)
        if not isinstance(value, str) or not _WORD.fullmatch(value):
            raise RequestError(
                subject=where,
                field=field,
                value=shorten(value),
                problem="is missing" if value is None else "is not one word",
                accepted="every object says its apiVersion and kind",
            )
        found[field] = value
    return found["kind"], found["apiVersion"].rpartition("/")[0]


def _name_subject(kind: str, document: dict[str, Any], where: str) -> str:
    meta = document.get("metadata")
    if not isinstance(meta, dict) or not _is_name(meta.get("name")):
        return f"{kind} ({where})"
    if kind in ("Node", "GpuReport", "GpuLedger"):
        return f"{kind} {meta['name']} ({where})"
    namespace = meta["namespace"] if _is_name(meta.get("namespace")) else "default"
    return f"{kind} {namespace}/{meta['name']} ({where})"


def _is_name(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None
