"""What is not as it should be between ledgers, pods, reports and cards: a function of one reading."""

import enum
from collections.abc import Iterator

import msgspec

from vramline.model.node import InventorySource, ProblemKind
from vramline.model.pod import Pod, PodPhase
from vramline.scheduler.disagreements import find_disagreements
from vramline.serve.reading import ClusterReading
from vramline.units import format_mib

__all__ = ["Finding", "Level", "examine_state"]

_NAMED = 5
"""How many names a finding lists."""

_ADVICE = {
    ProblemKind.INVENTORY_CONFLICT: "make the node's report, labels and annotations agree",
    ProblemKind.UNKNOWN_INVENTORY: "run the agent there, or annotate the node with vramline.io/gpus-physical",
    ProblemKind.FROZEN: "find out which of the two is true; nothing new is placed there until they agree",
}


class Level(enum.StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"
    """Worth knowing; nothing is wrong because of it."""
    PROBLEM = "problem"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    level: Level
    check: str
    message: str
    advice: str = ""
    """What to do about it; empty: nothing."""


def examine_state(reading: ClusterReading, *, max_age_s: float) -> list[Finding]:
    """Compare ledgers, pods, reports and cards with each other."""
    found = [
        *_unreadable(reading),
        *_node_problems(reading),
        *_reports(reading, max_age_s),
        *_disagreements(reading),
        *_orphans(reading),
        *_strangers(reading),
        *_over_promised(reading),
    ]
    if not any(each.level is Level.PROBLEM for each in found):
        fleet = reading.cluster.fleet
        cards, nodes = len(fleet.columns.row_of), sum(1 for _ in fleet.nodes)
        claims = sum(len(ledger.claims) for ledger in reading.ledgers.values())
        message = f"{claims:,} claims, {cards:,} GPUs and the pods of {nodes:,} nodes agree"
        found.insert(0, Finding(level=Level.OK, check="books", message=message))
    return found


def _unreadable(reading: ClusterReading) -> Iterator[Finding]:
    for problem in reading.problems:
        yield _problem("objects", problem, "correct the object; its node gets no new GPU pods until then")


def _node_problems(reading: ClusterReading) -> Iterator[Finding]:
    for node in sorted(reading.cluster.fleet.nodes, key=lambda node: node.name):
        if node.problem is not None:
            message = f"node {node.name}: {node.problem.kind}: {node.problem.detail}"
            yield _problem("nodes", message, _ADVICE[node.problem.kind])


def _reports(reading: ClusterReading, max_age_s: float) -> Iterator[Finding]:
    known = {node.name for node in reading.cluster.fleet.nodes}
    for name, report in sorted(reading.reports.items()):
        if name not in known:
            yield _warning(
                "reports",
                f"GpuReport {name} is of a node that is not there",
                f"kubectl delete gpureport {name}",
            )
        elif report.observed_at is None:
            yield _warning(
                "reports", f"GpuReport {name} has never been filled", f"look at the agent's log on {name}"
            )
        elif reading.read_at - report.observed_at > max_age_s:
            age = reading.read_at - report.observed_at
            yield _warning(
                "reports",
                f"GpuReport {name} is {age:,.0f} s old: its cards are counted by the books alone",
                f"look at the agent on {name}; pods are placed there without a look at the card",
            )
    silent = [
        node.name
        for node in reading.cluster.fleet.nodes
        if node.gpus and node.source is not InventorySource.REPORT
    ]
    if silent:
        yield _warning(
            "reports",
            f"{len(silent):,} nodes have GPUs and no report ({_names(silent)})",
            "run the agent there, or accept that unmanaged processes are not seen",
        )


def _disagreements(reading: ClusterReading) -> Iterator[Finding]:
    for pod in find_disagreements(reading.cluster.live):
        yield _problem(
            "books",
            f"pod {pod} has an allocation that its node's GpuLedger does not hold",
            "somebody changed the ledger: delete the pod, or restore the claim from its annotation",
        )


def _orphans(reading: ClusterReading) -> Iterator[Finding]:
    pods = reading.cluster.pods
    known = {node.name for node in reading.cluster.fleet.nodes}
    for name, ledger in sorted(reading.ledgers.items()):
        held = [claim for claim in ledger.claims if claim.until is None]
        gone = sorted({claim.pod for claim in held if claim.pod_uid not in pods})
        waiting = sorted({claim.pod for claim in ledger.claims if _is_unbound(pods.get(claim.pod_uid))})
        if gone:
            yield _warning(
                "books",
                f"the ledger of {name} still holds memory of pods that are gone: {_names(gone)}",
                "nothing, if a scheduler leads: it lets go once the card shows the memory free",
            )
        if waiting:
            yield _warning(
                "books",
                f"the ledger of {name} holds memory of pods that are not bound: {_names(waiting)}",
                "nothing, if a scheduler leads: a promise that is not kept is taken back after releaseGrace",
            )
        if name not in known:
            yield _warning(
                "books",
                f"GpuLedger {name} is of a node that is not there",
                f"kubectl delete gpuledger {name}, if it stays away",
            )


def _is_unbound(pod: Pod | None) -> bool:
    return pod is not None and pod.node is None


def _strangers(reading: ClusterReading) -> Iterator[Finding]:
    """Pods with a GPU request that went to their node without us: nobody says which card they use."""
    fleet = reading.cluster.fleet
    alive = [
        pod
        for pod in reading.cluster.pods.values()
        if pod.ask is not None and pod.phase is not PodPhase.FINISHED and _has_cards(reading, pod.node)
    ]
    counted = {pod.uid: bool(fleet.ledger.of_pod(pod.uid)) for pod in alive}
    guessed = sorted(pod.key for pod in alive if pod.allocation is None and counted[pod.uid])
    if guessed:
        yield _warning(
            "pods",
            f"{len(guessed):,} GPU pods were bound by somebody else and name no card ({_names(guessed)})",
            "their memory is held on a card that Vramline had to assume; restart them through Vramline",
        )
    uncounted = sorted(pod.key for pod in alive if not counted[pod.uid])
    if uncounted:
        yield _warning(
            "pods",
            f"{len(uncounted):,} GPU pods were bound by somebody else and hold nothing in the books"
            f" ({_names(uncounted)})",
            "set adoption: all while a cluster moves from HAMi or KAI; else restart them through Vramline",
        )


def _has_cards(reading: ClusterReading, name: str | None) -> bool:
    node = reading.cluster.fleet.node(name or "")
    return node is not None and bool(node.gpus)


def _over_promised(reading: ClusterReading) -> Iterator[Finding]:
    fleet = reading.cluster.fleet
    for uuid in sorted(fleet.columns.row_of):
        account, gpu = fleet.account(uuid), fleet.gpu(uuid)
        if account.free_by_books < 0 and gpu is not None:
            short = format_mib(-account.free_by_books)
            yield _problem(
                "books",
                f"{gpu.node}/{uuid} is promised {short} more than it can hold",
                "end a pod on it; `vramline gpus -o json` lists its claims",
            )


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(sorted(names)[:_NAMED]) + more


def _problem(check: str, message: str, advice: str) -> Finding:
    return Finding(level=Level.PROBLEM, check=check, message=message, advice=advice)


def _warning(check: str, message: str, advice: str) -> Finding:
    return Finding(level=Level.WARNING, check=check, message=message, advice=advice)
