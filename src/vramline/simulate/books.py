"""GpuLedgers of a snapshot, compared with its pods: whose claims they are, and where the two disagree."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from vramline.errors import RequestError
from vramline.model.claim import Claim
from vramline.model.fleet import Fleet
from vramline.model.node import NodeProblem, ProblemKind
from vramline.model.pod import Pod, PodPhase
from vramline.units import format_mib
from vramline.wire.identity import uid_of
from vramline.wire.kubernetes import ObjectMeta
from vramline.wire.ledger_v1alpha1 import GpuLedger

__all__ = ["Books", "freeze_unreadable", "read_books"]

_SUBJECT = re.compile(r"GpuLedger (?P<node>\S+) \(")


@dataclass(slots=True)
class Books:
    """What the ledgers say, by whom it is about."""

    of_pods: dict[str, tuple[Claim, ...]] = field(default_factory=dict)
    """Claims of pods that are in the input, by pod UID."""
    of_strangers: list[Claim] = field(default_factory=list)
    """Claims of pods that are not in the input, or are elsewhere. They hold memory all the same."""
    problems: list[RequestError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_books(fleet: Fleet, ledgers: Iterable[GpuLedger], pods: Mapping[str, Pod]) -> Books:
    """Sort the claims of all ledgers. A ledger that contradicts cards or pods freezes its node, and only it.

    A claim belongs to the pod with its UID; where the manifest of a pod had none, to the pod of its name.
    """
    books = Books()
    by_stand_in = {pod.uid: pod.uid for pod in pods.values() if pod.uid == _stand_in(pod.key)}
    for ledger in ledgers:
        if fleet.node(ledger.node) is None:
            books.warnings.append(f"GpuLedger {ledger.node}: no such node in the input; it is left out")
            continue
        for claim in ledger.claims:
            uid = claim.pod_uid if claim.pod_uid in pods else by_stand_in.get(_stand_in(claim.pod))
            uid = uid if claim.until is None else None  # its pod is yet to come, whatever it is called
            own = claim if uid is None else msgspec.structs.replace(claim, pod_uid=uid)
            _sort(books, fleet, ledger.node, own, pods.get(own.pod_uid))
    return books


def freeze_unreadable(fleet: Fleet, problems: Iterable[RequestError]) -> None:
    """Freeze the nodes whose ledger could not be read: what it promised is not known, so nothing is free."""
    for problem in problems:
        found = _SUBJECT.match(problem.subject)
        if found and problem.field != "metadata.name" and fleet.node(found["node"]) is not None:
            fleet.freeze(found["node"], NodeProblem(ProblemKind.FROZEN, str(problem)))


def _sort(books: Books, fleet: Fleet, node: str, claim: Claim, pod: Pod | None) -> None:
    """Put one claim where it belongs."""
    gpu = fleet.gpu(claim.gpu)
    if gpu is None or gpu.node != node:
        problem = f"{claim.pod} holds a claim on a GPU that is not on this node; the node is frozen"
        _freeze(books, fleet, node, claim, problem)
    elif pod is None:
        books.of_strangers.append(claim)
        books.warnings.append(
            f"GpuLedger {node}: {claim.pod} is not in the input; its {format_mib(claim.mib)} on {claim.gpu}"
            " stay reserved"
        )
    elif pod.phase is PodPhase.FINISHED:
        return
    elif pod.node not in {None, node}:
        books.of_strangers.append(claim)
        problem = f"{claim.pod} holds a claim here, but it is on {pod.node}; the node is frozen"
        _freeze(books, fleet, node, claim, problem)
    else:
        books.of_pods[pod.uid] = (*books.of_pods.get(pod.uid, ()), claim)


def _freeze(books: Books, fleet: Fleet, node: str, claim: Claim, problem: str) -> None:
    error = RequestError(
        subject=f"GpuLedger {node}", field=f"spec.claims[{claim.gpu}]", value=claim.pod_uid, problem=problem
    )
    books.problems.append(error)
    fleet.freeze(node, NodeProblem(ProblemKind.FROZEN, str(error)))


def _stand_in(key: str) -> str:
    """Return the UID that a pod gets whose manifest has none."""
    namespace, _, name = key.rpartition("/")
    return uid_of(ObjectMeta(namespace=namespace, name=name))
