"""One run of the simulator: from documents to a filled cluster and the fate of every pod.

What is there already is adopted first, then every pending pod is placed: by creation time, then in the
order of appearance, pods without a creation time last.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from vramline.errors import RequestError
from vramline.model.fleet import Fleet
from vramline.model.pod import GpuShare, Pod, PodPhase
from vramline.model.reason import Reason
from vramline.simulate.books import freeze_unreadable, read_books
from vramline.simulate.cluster import EmbeddedCluster
from vramline.simulate.inventory import read_inventory
from vramline.simulate.options import RunOptions
from vramline.simulate.outcome import Outcome, Status
from vramline.units import format_mib
from vramline.wire.documents import Manifests, read_documents, read_now
from vramline.wire.identity import key_of, namespace_of, uid_of
from vramline.wire.kubernetes import PodObject
from vramline.wire.pods import read_pod

__all__ = ["Run", "run_documents", "run_manifests"]

_NEAREST = 20
"""Nodes listed for a pod that was not placed."""
_POD_SUBJECT = re.compile(r"Pod (?P<namespace>[^\s/]+)/(?P<name>[^\s/]+)(?: \(|$)")


@dataclass(slots=True, kw_only=True)
class Run:
    """What came of it."""

    cluster: EmbeddedCluster
    outcomes: list[Outcome] = field(default_factory=list)
    """Pods that were there before, then rejected ones, then the others in the order of their placement."""
    finished: int = 0
    """Pods that hold nothing any more and are not listed."""
    problems: list[RequestError] = field(default_factory=list)
    """Every object that was rejected, in part or as a whole."""
    warnings: list[str] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """Where an object of a kind that is not read stood, and its kind."""


def run_documents(documents: Iterable[tuple[str, object]], options: RunOptions) -> Run:
    """Run on parsed documents, each with where it stood."""
    return run_manifests(read_documents(documents), options)


def run_manifests(manifests: Manifests, options: RunOptions) -> Run:
    """Run on typed objects. One that is wrong is set aside and reported; the others are placed."""
    now = read_now(manifests) if options.now is None else options.now
    cluster = EmbeddedCluster(
        options.rules,
        clock=lambda: now,
        margin=options.margin,
        release_grace_s=options.release_grace_s,
        pool=options.pool,
    )
    cluster.on_decision = lambda decision: options.on_decision(cluster.fleet, decision)
    run = Run(cluster=cluster, problems=list(manifests.problems), skipped=manifests.skipped)
    _add_nodes(run, manifests)
    rejected: list[Outcome] = []
    pods = _read_pods(run, manifests, rejected)
    _adopt(run, manifests, pods, rejected)
    run.outcomes += rejected
    _place(run, [pod for pod in pods if pod.phase is PodPhase.PENDING], options)
    return run


def _add_nodes(run: Run, manifests: Manifests) -> None:
    inventory = read_inventory(manifests)
    run.problems += inventory.problems
    run.warnings += inventory.warnings
    for reading in inventory.readings:
        run.cluster.set_node(reading.node, reading.observations)
    freeze_unreadable(run.cluster.fleet, manifests.problems)


def _read_pods(run: Run, manifests: Manifests, rejected: list[Outcome]) -> list[Pod]:
    """Read every pod; one that cannot be read is rejected, and its node frozen if it is on one."""
    pods: dict[str, Pod] = {}
    known = {key_of(each.metadata) for each in manifests.pods}
    for problem in run.problems:
        found = _POD_SUBJECT.match(problem.subject)
        if found and f"{found['namespace']}/{found['name']}" not in known:
            rejected.append(_reject(Pod(namespace=found["namespace"], name=found["name"], uid=""), problem))
    for each in manifests.pods:
        try:
            pod = read_pod(each)
            _check_uid(pod, pods.get(pod.uid))
            pods[pod.uid] = pod
        except RequestError as error:
            run.problems.append(error)
            rejected.append(_reject(_nameplate(each), error))
            _freeze_under(run.cluster, each, error)
    run.finished = sum(pod.phase is PodPhase.FINISHED for pod in pods.values())
    return list(pods.values())


def _check_uid(pod: Pod, other: Pod | None) -> None:
    if other is not None:
        raise RequestError(
            subject=f"Pod {pod.key}",
            field="metadata.uid",
            value=pod.uid,
            problem=f"is the UID of {other.key} too; this pod is set aside",
            accepted="a UID of its own, or none",
        )


def _nameplate(each: PodObject) -> Pod:
    meta = each.metadata
    return Pod(namespace=namespace_of(meta), name=meta.name or "", uid=uid_of(meta))


def _reject(pod: Pod, error: RequestError) -> Outcome:
    return Outcome(pod=pod, status=Status.REJECTED, refusal=Reason.INVALID_REQUEST, said=str(error))


def _freeze_under(cluster: EmbeddedCluster, each: PodObject, error: RequestError) -> None:
    """A pod that is on a node holds something there; where nobody can say what, nothing new goes there."""
    node = each.spec.node_name if each.spec else None
    ended = each.status is not None and each.status.phase in {"Succeeded", "Failed"}
    if node and not ended and cluster.fleet.node(node) is not None:
        cluster.freeze(node, str(error))


def _adopt(run: Run, manifests: Manifests, pods: list[Pod], rejected: list[Outcome]) -> None:
    """Take in every pod, and say of those on nodes what they hold."""
    cluster = run.cluster
    here: list[Pod] = []
    strays = 0
    for pod in pods:
        if pod.node is None or pod.phase is PodPhase.FINISHED or cluster.fleet.node(pod.node) is not None:
            here.append(pod)
        elif pod.ask is None:
            strays += 1
        else:
            error = _unknown_node(pod)
            run.problems.append(error)
            rejected.append(_reject(pod, error))
    if strays:
        run.warnings.append(f"{strays:,} pods without a GPU are on nodes that are not in the input; left out")
    books = read_books(cluster.fleet, manifests.ledgers, {pod.uid: pod for pod in here})
    run.warnings += books.warnings
    problems = [*books.problems, *cluster.adopt(here, books.of_pods)]
    cluster.fleet.adopt(books.of_strangers)
    run.problems += problems
    doubts = {problem.subject: str(problem) for problem in problems}
    for pod in here:
        if pod.node is not None and pod.phase is not PodPhase.FINISHED:
            named = pod.allocation is not None or pod.uid in books.of_pods
            run.outcomes.append(_there(cluster.fleet, pod, doubts.get(f"Pod {pod.key}"), named=named))


def _unknown_node(pod: Pod) -> RequestError:
    return RequestError(
        subject=f"Pod {pod.key}",
        field="spec.nodeName",
        value=pod.node,
        problem="is no node of the input that could be read",
        accepted="the name of a Node or GpuReport, or none for a pod that is to be placed",
    )


def _there(fleet: Fleet, pod: Pod, doubt: str | None, *, named: bool) -> Outcome:
    """Say of a pod that is on a node what it holds there."""
    node = fleet.node(pod.node or "")
    cards = {gpu.uuid for gpu in node.gpus} if node is not None else set()
    claims = [claim for claim in fleet.ledger.of_pod(pod.uid) if claim.gpu in cards]
    shares = tuple(GpuShare(claim.gpu, claim.mib, claim.cores) for claim in claims)
    releasing = pod.phase is PodPhase.RELEASING
    warning = doubt
    if warning is None and pod.ask is not None and len(cards) < pod.ask.gpus:
        warning = f"asks for {pod.ask.gpus} GPUs, but {pod.node} has only {len(cards)}"
    elif warning is None and shares and not named:
        warning = "nothing says which GPU it is on; the one with the most room was assumed"
    return Outcome(
        pod=pod,
        status=Status.RELEASING if releasing else Status.RUNNING,
        node=pod.node,
        gpus=shares,
        said=_release_message(pod, shares) if releasing and pod.ask and cards and not doubt else "",
        notes=() if warning is None else (warning,),
    )


def _release_message(pod: Pod, shares: tuple[GpuShare, ...]) -> str:
    if not shares:
        return "its memory is proved free"
    held = format_mib(sum(share.mib for share in shares))
    if pod.ended_at is None:
        return f"holds {held} while its containers run"
    return f"holds {held}: its containers have ended, but no later observation shows the memory freed"


def _place(run: Run, pending: list[Pod], options: RunOptions) -> None:
    queue = sorted(pending, key=lambda pod: (pod.created_at is None, pod.created_at or 0.0))
    for number, pod in enumerate(queue, start=1):
        outcome = run.cluster.place(pod.uid, most_nodes=None if options.all_nodes else _NEAREST)
        run.outcomes.append(replace(outcome, decision=None))
        options.report(number, len(queue))
