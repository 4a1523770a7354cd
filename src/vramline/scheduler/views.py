"""What the JSON API shows of a cluster: cards, nodes, pods, decisions. Reads only."""

from collections.abc import Iterable
from typing import assert_never

import msgspec

from vramline.decide.engine import decide
from vramline.explain.cards import CardState, NodeState, card_state, node_state
from vramline.explain.decision import Explanation, explain_decision
from vramline.explain.history import DecisionRecord
from vramline.explain.pods import PodStory, PodView, say_hint
from vramline.model.ask import Ask, MibSize, ShareSize, UnsizedSize, WholeSize
from vramline.model.claim import Claim
from vramline.model.cluster import Cluster
from vramline.model.pod import GpuShare, Pod, PodPhase
from vramline.scheduler.journal import Journal
from vramline.units import format_mib

__all__ = [
    "explain_ask",
    "explain_now",
    "list_gpus",
    "list_nodes",
    "list_pods",
    "say_ask",
    "tell_pod",
    "view_pod",
]

_GONE = "Gone"


def list_gpus(cluster: Cluster) -> list[CardState]:
    """Return every card, by node and index."""
    max_age_s, now = cluster.rules_for(None).max_age_s, cluster.now()
    nodes = sorted(cluster.fleet.nodes, key=lambda node: node.name)
    return [
        card_state(cluster.fleet, gpu.uuid, now=now, max_age_s=max_age_s)
        for node in nodes
        for gpu in sorted(node.gpus, key=lambda gpu: (gpu.index, gpu.uuid))
    ]


def list_nodes(cluster: Cluster) -> list[NodeState]:
    """Return every node, by name."""
    max_age_s, now = cluster.rules_for(None).max_age_s, cluster.now()
    names = sorted(node.name for node in cluster.fleet.nodes)
    return [node_state(cluster.fleet, name, now=now, max_age_s=max_age_s) for name in names]


def list_pods(cluster: Cluster, journal: Journal) -> list[PodView]:
    """Return every pod by name; those that hold memory although their object is gone are among them."""
    views = [_view(cluster, journal, pod) for pod in cluster.pods.values()]
    ended: dict[str, list[Claim]] = {}
    for claim in cluster.fleet.ledger:
        if claim.pod_uid not in cluster.pods and claim.until is None:
            ended.setdefault(claim.pod_uid, []).append(claim)
    views += [_view_ended(cluster, journal, claims) for claims in ended.values()]
    return sorted(views, key=lambda view: (view.pod, view.uid))


def view_pod(cluster: Cluster, journal: Journal, uid: str) -> PodView | None:
    """Return one pod as it is in the list; None: it is not there."""
    pod = cluster.pods.get(uid)
    if pod is not None:
        return _view(cluster, journal, pod)
    claims = cluster.fleet.ledger.of_pod(uid)
    return _view_ended(cluster, journal, list(claims)) if claims else None


def tell_pod(
    cluster: Cluster, journal: Journal, key: str, older: Iterable[DecisionRecord] = ()
) -> PodStory | None:
    """Return what is known about a pod (namespace/name); None: nothing is.

    `older` are decisions that a chronicle has, newest first; the journal may have some of them too.
    """
    records = journal.records_of(key)
    known = {record.id for record in records}
    records += [record for record in older if record.id not in known]
    records.sort(key=lambda record: -record.at)
    view = _find(cluster, journal, key)
    if view is None and not records:
        return None
    if view is None:
        view = _view_gone(records[0])
    pod = cluster.pods.get(view.uid)
    return PodStory(
        pod=view,
        hint=_hint_of(pod, records),
        now=None if pod is None else explain_now(cluster, pod),
        decision=records[0] if records else None,
        changed=journal.changes_of(key),
        cards=_cards_of(cluster, view),
        history=[_without_nodes(record) for record in records[1:]],
    )


def _hint_of(pod: Pod | None, records: list[DecisionRecord]) -> str:
    """Say which node kube-scheduler was told to try first; a pod for which others left is another story."""
    if pod is not None and pod.phase is PodPhase.PENDING:
        return "" if pod.nominated is None or pod.preempts_on else say_hint(pod.nominated, None)
    last = records[0] if records else None
    if last is None or last.nominated is None or last.node is None:
        return ""
    return say_hint(last.nominated, last.node) if pod is None or last.pod_uid == pod.uid else ""


def say_ask(ask: Ask) -> str:
    """Say what a pod wants of GPUs.

    >>> from vramline.units import Mib
    >>> say_ask(Ask(pod="ns/p", pod_uid="u", gpus=2, size=MibSize(Mib(8000)), cores=30))
    '8,000 MiB and 30 % of the cores on each of 2 GPUs'
    """
    cores = f" and {ask.cores} % of the cores" if ask.cores else ""
    several = f" on each of {ask.gpus} GPUs" if ask.gpus > 1 else ""
    match ask.size:
        case MibSize(mib):
            return f"{format_mib(mib)}{cores}{several}"
        case ShareSize(numerator, denominator):
            return f"{numerator}/{denominator} of a GPU{cores}{several}"
        case WholeSize():
            return (f"{ask.gpus} whole GPUs" if ask.gpus > 1 else "a whole GPU") + cores
        case UnsizedSize():
            return (f"{ask.gpus} GPUs" if ask.gpus > 1 else "a GPU") + cores
        case _:
            assert_never(ask.size)


def _find(cluster: Cluster, journal: Journal, key: str) -> PodView | None:
    """Return the first of the pods with this name; a new one may have come while an old one holds memory."""
    uids = [pod.uid for pod in cluster.pods.values() if pod.key == key]
    if not uids:
        uids = [claim.pod_uid for claim in cluster.fleet.ledger if claim.pod == key]
    return view_pod(cluster, journal, min(uids)) if uids else None


def _view(cluster: Cluster, journal: Journal, pod: Pod) -> PodView:
    record = journal.history.latest(pod.uid)
    pending = record is not None and pod.phase is PodPhase.PENDING
    return PodView(
        pod=pod.key,
        uid=pod.uid,
        status=pod.phase.value,
        asks="" if pod.ask is None else say_ask(pod.ask),
        node=pod.node,
        gpus=_shares(cluster.fleet.ledger.of_pod(pod.uid)),
        priority=pod.priority,
        age_s=None if pod.created_at is None else cluster.now() - pod.created_at,
        reason=record.explanation.reason if record is not None and pending else None,
        message="" if record is None else record.explanation.message,
    )


def _view_ended(cluster: Cluster, journal: Journal, claims: list[Claim]) -> PodView:
    record = journal.history.latest(claims[0].pod_uid)
    gpu = cluster.fleet.gpu(claims[0].gpu)
    return PodView(
        pod=claims[0].pod,
        uid=claims[0].pod_uid,
        status=claims[0].state.value,
        asks="",
        node=None if gpu is None else gpu.node,
        gpus=_shares(claims),
        priority=0,
        age_s=None,
        reason=None,
        message="" if record is None else record.explanation.message,
    )


def _view_gone(record: DecisionRecord) -> PodView:
    return PodView(
        pod=record.pod,
        uid=record.pod_uid,
        status=_GONE,
        asks="",
        node=None,
        gpus=[],
        priority=0,
        age_s=None,
        reason=None,
        message=record.explanation.message,
    )


def explain_now(cluster: Cluster, pod: Pod) -> Explanation | None:
    """Say what a decision about a pending pod would say at this moment; None: there is nothing to decide."""
    if pod.ask is None or pod.phase is not PodPhase.PENDING:
        return None
    return explain_ask(cluster, pod, pod.ask)


def explain_ask(cluster: Cluster, pod: Pod, ask: Ask) -> Explanation:
    """Say what would be decided at this moment about a pod like this one, whatever became of it."""
    rules, candidates, fleet = cluster.rules_for(ask), cluster.candidates_for(pod), cluster.fleet
    for home in cluster.reserved_on(pod)[:1]:  # that node is its own, as far as it reserved it
        fleet, candidates = cluster.view_of(home, pod), None
    decision = decide(fleet, ask, rules, now=cluster.now(), candidates=candidates)
    return explain_decision(fleet, decision, rules, candidates=candidates)


def _cards_of(cluster: Cluster, view: PodView) -> list[CardState]:
    max_age_s, now = cluster.rules_for(None).max_age_s, cluster.now()
    return [
        card_state(cluster.fleet, share.uuid, now=now, max_age_s=max_age_s)
        for share in view.gpus
        if cluster.fleet.gpu(share.uuid) is not None
    ]


def _shares(claims: "tuple[Claim, ...] | list[Claim]") -> list[GpuShare]:
    return [GpuShare(claim.gpu, claim.mib, claim.cores) for claim in claims]


def _without_nodes(record: DecisionRecord) -> DecisionRecord:
    bare = msgspec.structs.replace(record.explanation, nodes=[])
    return msgspec.structs.replace(record, explanation=bare)
