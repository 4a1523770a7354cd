"""The extender's four verbs over a cluster: filter, prioritize, preempt, bind."""

import numpy as np
import numpy.typing as npt

from vramline.decide.engine import decide
from vramline.errors import RequestError
from vramline.explain.decision import Explanation, explain_decision
from vramline.explain.history import DecisionRecord, PodOutcome
from vramline.explain.whatif import copy_without_pods
from vramline.model.ask import Ask
from vramline.model.cluster import Cluster
from vramline.model.decision import Decision
from vramline.model.pod import GpuShare, Pod, PodPhase
from vramline.model.reason import CODE_OF, FITS, Reason
from vramline.scheduler.journal import Journal
from vramline.scheduler.refusals import REFUSALS, UNKNOWN_NODE, may_be_resolved
from vramline.wire.decoding import convert_document
from vramline.wire.extender_v1 import (
    MAX_SCORE,
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
    NodeList,
)
from vramline.wire.kubernetes import PodObject
from vramline.wire.pods import read_pod

__all__ = ["bind_pod", "filter_nodes", "preempt_pods", "prioritize_nodes"]

_NODES_KEPT = 5
"""How many nodes a recorded filter explains; the whole answer is in the call."""

_NOT_HERE = -1


def filter_nodes(cluster: Cluster, journal: Journal, args: ExtenderArgs) -> ExtenderFilterResult:
    """Return all nodes that fit, and for every other node why not.

    A pod whose own request is wrong comes back as `error`; a pod that asks for no GPU fits everywhere.
    """
    try:
        pod = _read_pod(args.pod)
    except RequestError as error:
        return ExtenderFilterResult(error=f"{Reason.INVALID_REQUEST}: {error}")
    if pod.ask is None:
        return _answer(args, set(args.names), {}, {})
    numbers = _numbers_of(cluster, args.names)
    decision = _decide_among(cluster, pod, pod.ask, numbers)
    _record(cluster, journal, decision)
    return _sort_nodes(cluster, args, numbers, decision)


def prioritize_nodes(cluster: Cluster, args: ExtenderArgs) -> list[HostPriority]:
    """Score the nodes 0 to 10 by their rank. Only the node that `decide` itself would pick gets 10."""
    pod = _read_pod(args.pod)
    if pod.ask is None:
        return [HostPriority(name, 0) for name in args.names]
    numbers = _numbers_of(cluster, args.names)
    decision = _decide_among(cluster, pod, pod.ask, numbers)
    codes, scores = decision.node_codes.tolist(), decision.scores.tolist()
    fitting = [scores[n] if n != _NOT_HERE and codes[n] == FITS else None for n in numbers]
    ranks = sorted({score for score in fitting if score is not None}, reverse=True)
    points = {None: 0} | {score: _points(place, len(ranks)) for place, score in enumerate(ranks)}
    best = None if decision.placement is None else decision.placement.node
    return [
        HostPriority(name, MAX_SCORE if name == best else points[score])
        for name, score in zip(args.names, fitting, strict=True)
    ]


def preempt_pods(cluster: Cluster, args: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
    """Keep the nodes on which the pod would fit once the given victims and their memory are gone.

    Nothing else is done: no victim is added or spared.
    """
    pod = _read_pod(args.pod)
    ask = pod.ask
    if ask is None:
        return ExtenderPreemptionResult(node_name_to_meta_victims=args.victims)
    rules, now = cluster.rules_for(ask), cluster.now()
    kept = {}
    for node, victims in args.victims.items():
        if cluster.fleet.node(node) is None:
            continue
        without = copy_without_pods(cluster.fleet, node, [victim.uid for victim in victims.pods])
        if decide(without, ask, rules, now=now).placement is not None:
            kept[node] = victims
    return ExtenderPreemptionResult(node_name_to_meta_victims=kept)


async def bind_pod(cluster: Cluster, journal: Journal, args: ExtenderBindingArgs) -> ExtenderBindingResult:
    """Bind a pod of the cluster; what speaks against it comes back as `error`."""
    key = f"{args.pod_namespace}/{args.pod_name}"
    pod = cluster.pods.get(args.pod_uid)
    if pod is None or pod.key != key:
        found = "" if pod is None else f"; that is {pod.key}"
        return ExtenderBindingResult(f"no pod {key} with UID {args.pod_uid}{found}")
    number = cluster.fleet.node_number(args.node)
    if number is None:
        return ExtenderBindingResult(f"no node {args.node}")
    seen = None
    if pod.ask is not None and pod.phase is PodPhase.PENDING:
        decision = _decide_among(cluster, pod, pod.ask, [number])
        seen = decision.at, _explain(cluster, decision, most_nodes=1)
    outcome = await cluster.bind(args.pod_uid, args.node)
    if seen is not None:
        at, explanation = seen
        claims = cluster.fleet.ledger.of_pod(pod.uid) if not outcome.refused else ()
        journal.bound(
            DecisionRecord(
                at=at,
                pod=key,
                pod_uid=pod.uid,
                outcome=PodOutcome.PENDING if outcome.refused else PodOutcome.BOUND,
                node=None if outcome.refused else args.node,
                gpus=tuple(GpuShare(claim.gpu, claim.mib, claim.cores) for claim in claims),
                explanation=explanation,
            )
        )
    return ExtenderBindingResult(outcome.refused)


def _read_pod(document: object) -> Pod:
    return read_pod(convert_document(document, PodObject, subject="Pod"))


def _numbers_of(cluster: Cluster, names: tuple[str, ...]) -> list[int]:
    found = map(cluster.fleet.node_number, names)
    return [_NOT_HERE if number is None else number for number in found]


def _decide_among(cluster: Cluster, pod: Pod, ask: Ask, numbers: list[int]) -> Decision:
    """Decide as if there were only these nodes."""
    hosts = cluster.candidates_for(pod)
    here = np.array([number for number in numbers if number != _NOT_HERE], dtype=np.int64)
    candidates: npt.NDArray[np.int8] = np.full(
        cluster.fleet.node_count, CODE_OF[Reason.NOT_A_CANDIDATE], dtype=np.int8
    )
    candidates[here] = FITS if hosts is None else hosts[here]
    return decide(cluster.fleet, ask, cluster.rules_for(ask), now=cluster.now(), candidates=candidates)


def _explain(cluster: Cluster, decision: Decision, *, most_nodes: int) -> Explanation:
    return explain_decision(
        cluster.fleet, decision, cluster.rules_for(decision.ask), most_nodes=most_nodes, why=False
    )


def _record(cluster: Cluster, journal: Journal, decision: Decision) -> None:
    """Remember what the filter saw; where nothing fits, that is a decision of its own."""
    ask = decision.ask
    explanation = _explain(cluster, decision, most_nodes=_NODES_KEPT)
    journal.filtered(ask.pod_uid, explanation)
    if decision.placement is None:
        journal.history.add(
            DecisionRecord(
                at=decision.at,
                pod=ask.pod,
                pod_uid=ask.pod_uid,
                outcome=PodOutcome.PENDING,
                explanation=explanation,
            )
        )


def _sort_nodes(
    cluster: Cluster, args: ExtenderArgs, numbers: list[int], decision: Decision
) -> ExtenderFilterResult:
    codes = decision.node_codes.tolist()
    resolvable = may_be_resolved(cluster.fleet, decision).tolist()
    fitting: set[str] = set()
    failed: dict[str, str] = {}
    beyond_help: dict[str, str] = {}
    for name, number in zip(args.names, numbers, strict=True):
        if number == _NOT_HERE:
            beyond_help[name] = UNKNOWN_NODE
        elif codes[number] == FITS:
            fitting.add(name)
        else:
            (failed if resolvable[number] else beyond_help)[name] = REFUSALS[codes[number]]
    return _answer(args, fitting, failed, beyond_help)


def _answer(
    args: ExtenderArgs, fitting: set[str], failed: dict[str, str], beyond_help: dict[str, str]
) -> ExtenderFilterResult:
    """Answer in the form of the request: names for names, full objects for full objects."""
    nodes = names = None
    if args.nodes is None:
        names = [name for name in args.names if name in fitting]
    else:
        pairs = zip(args.names, args.nodes.items, strict=True)
        nodes = NodeList(items=[item for name, item in pairs if name in fitting])
    return ExtenderFilterResult(
        nodes=nodes, node_names=names, failed_nodes=failed, failed_and_unresolvable_nodes=beyond_help
    )


def _points(place: int, places: int) -> int:
    """Spread places over 9 (the best) to 0 (the last)."""
    most = MAX_SCORE - 1
    return most - most * place // max(places - 1, 1)
