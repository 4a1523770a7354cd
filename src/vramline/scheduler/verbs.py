"""Three of the extender's verbs over a cluster: filter, prioritize, bind. The fourth is in `preemption`."""

from collections.abc import Callable
from functools import partial
from itertools import compress

import numpy as np
import numpy.typing as npt

from vramline.decide.engine import decide
from vramline.errors import RequestError
from vramline.explain.decision import explain_decision
from vramline.explain.history import DecisionRecord, PodOutcome
from vramline.explain.lines import keep_lines
from vramline.explain.replay import MOST_CARDS, Case, Question, take_case
from vramline.model.ask import Ask
from vramline.model.cluster import Cluster
from vramline.model.decision import Decision
from vramline.model.fleet import NOT_HERE
from vramline.model.pod import GpuShare, Pod, PodPhase
from vramline.model.reason import CODE_OF, FITS, Reason
from vramline.scheduler.journal import Journal
from vramline.scheduler.refusals import REFUSALS, RESERVED_ELSEWHERE, UNKNOWN_NODE, may_be_resolved
from vramline.wire.extender_v1 import (
    MAX_SCORE,
    AskedPod,
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    HostPriority,
    NodeList,
    read_asked_pod,
    version_of_asked_pod,
)
from vramline.wire.pods import read_pod

__all__ = [
    "bind_pod",
    "decide_among",
    "decided_for_filter",
    "filter_nodes",
    "open_among",
    "pod_of",
    "points_of",
    "prioritize_nodes",
    "record_filter",
]

_NODES_KEPT = 5
"""How many nodes a recorded filter explains; the whole answer is in the call."""

_SAME_MOMENT_S = 0.5
"""How much later prioritize may come and still mean what filter saw."""

Numbers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]


async def filter_nodes(cluster: Cluster, journal: Journal, args: ExtenderArgs) -> ExtenderFilterResult:
    """Return all nodes that fit, and for every other node why not.

    A pod whose own request is wrong comes back as `error`; a pod that asks for no GPU fits everywhere.
    """
    try:
        pod = pod_of(cluster, journal, args.pod)
    except RequestError as error:
        return ExtenderFilterResult(error=f"{Reason.INVALID_REQUEST}: {error}")
    if pod.ask is None:
        return _answer(args, None, {}, {})
    await cluster.recall(pod.uid)
    home = _reserved_node(cluster, journal, pod, pod.ask, args.names)
    if home is not None:
        elsewhere = dict.fromkeys((name for name in args.names if name != home), RESERVED_ELSEWHERE)
        return _answer(args, np.array([name == home for name in args.names]), elsewhere, {})
    if len(args.names) == 1 and _fits_alone(cluster, journal, pod, pod.ask, args.names[0]):
        return _answer(args, None, {}, {})
    numbers = cluster.fleet.node_numbers(args.names)
    candidates = open_among(cluster, pod, numbers)
    decision = decide_among(cluster, pod.ask, candidates)
    journal.last_filter = decision
    record_filter(cluster, journal, decision, candidates)
    return _sort_nodes(cluster, args, numbers, decision)


def prioritize_nodes(cluster: Cluster, journal: Journal, args: ExtenderArgs) -> list[HostPriority]:
    """Score the nodes 0 to 10 by their rank. Only the node that `decide` itself would pick gets 10."""
    pod = pod_of(cluster, journal, args.pod)
    if pod.ask is None:
        return [HostPriority(name, 0) for name in args.names]
    numbers = cluster.fleet.node_numbers(args.names)
    decision = decided_for_filter(cluster, journal, pod.ask, numbers)
    if decision is None:
        decision = decide_among(cluster, pod.ask, open_among(cluster, pod, numbers))
    points = points_of(decision, numbers).tolist()
    if decision.placement is not None and decision.placement.node in args.names:
        points[args.names.index(decision.placement.node)] = MAX_SCORE
    return list(map(HostPriority, args.names, points))


async def bind_pod(cluster: Cluster, journal: Journal, args: ExtenderBindingArgs) -> ExtenderBindingResult:
    """Bind a pod of the cluster; what speaks against it comes back as `error`."""
    key = f"{args.pod_namespace}/{args.pod_name}"
    if args.pod_uid not in cluster.pods:
        await cluster.meet(args.pod_namespace, args.pod_name)
    pod = cluster.pods.get(args.pod_uid)
    if pod is None or pod.key != key:
        found = "" if pod is None else f"; that is {pod.key}"
        return ExtenderBindingResult(f"no pod {key} with UID {args.pod_uid}{found}")
    if cluster.fleet.node(args.node) is None:
        return ExtenderBindingResult(f"no node {args.node}")
    look = None
    if pod.ask is not None and pod.phase is PodPhase.PENDING:
        look = _Look(cluster, pod, pod.ask, args.node)
    outcome = await cluster.bind(args.pod_uid, args.node)
    if look is not None and outcome.refused:
        # What was seen before may have changed in between: the card was looked at, or somebody was faster.
        if pod.ask is not None and cluster.fleet.node(args.node) is not None:
            look = _Look(cluster, pod, pod.ask, args.node)
        journal.not_bound(look.record(PodOutcome.PENDING, ()), look.case)
    elif look is not None:
        claims = cluster.fleet.ledger.of_pod(pod.uid)
        gpus = tuple(GpuShare(claim.gpu, claim.mib, claim.cores) for claim in claims)
        journal.bound(key, pod.uid, partial(look.record, PodOutcome.BOUND, gpus), look.case)
    return ExtenderBindingResult(outcome.refused)


class _Look:
    """One node as it was when a pod was to go there; put into words only when somebody asks."""

    def __init__(self, cluster: Cluster, pod: Pod, ask: Ask, node: str) -> None:
        hosts = cluster.candidates_for(pod)
        self._candidates = None if hosts is None else hosts[cluster.fleet.node_numbers([node])]
        self.alone, self._rules, self._at = cluster.view_of(node, pod), cluster.rules_for(ask), cluster.now()
        self._pod, self._ask, self._node = pod, ask, node

    def record(self, outcome: PodOutcome, gpus: tuple[GpuShare, ...]) -> DecisionRecord:
        """Say what became of the pod, and what was seen."""
        return DecisionRecord(
            at=self._at,
            pod=self._pod.key,
            pod_uid=self._pod.uid,
            outcome=outcome,
            node=self._node if outcome is PodOutcome.BOUND else None,
            gpus=gpus,
            nominated=None if self._pod.preempts_on else self._pod.nominated,
            explanation=explain_decision(self.alone, self.decide(), self._rules, most_nodes=1, why=False),
        )

    def case(self) -> Case:
        """Take down what was decided on; the picture of the node does not change."""
        question = Question(ask=self._ask, rules=self._rules, at=self._at, most_nodes=1, why=False)
        return take_case(self.alone, question, self._candidates)

    def decide(self) -> Decision:
        """Decide about the node as it was."""
        return decide(self.alone, self._ask, self._rules, now=self._at, candidates=self._candidates)


def pod_of(cluster: Cluster, journal: Journal, document: AskedPod) -> Pod:
    """Return the pod that is asked about: often the same as a moment ago, or known in this very version."""
    if journal.last_pod is not None and journal.last_pod[0] == document:
        return journal.last_pod[1]
    pod = cluster.pod_at(*version_of_asked_pod(document))
    if pod is None:
        pod = read_pod(read_asked_pod(document))
    journal.last_pod = document, pod
    return pod


def _reserved_node(
    cluster: Cluster, journal: Journal, pod: Pod, ask: Ask, names: tuple[str, ...]
) -> str | None:
    """Return the node among these on which the pod's memory is reserved, and where it fits still."""
    if not pod.advances:
        return None
    homes = (name for name in cluster.reserved_on(pod) if name in names)
    return next((home for home in homes if _fits_alone(cluster, journal, pod, ask, home)), None)


def _fits_alone(cluster: Cluster, journal: Journal, pod: Pod, ask: Ask, node: str) -> bool:
    """Whether the only node in question fits: usually one to which the pod is nominated."""
    if cluster.fleet.node(node) is None:
        return False
    number = cluster.fleet.node_numbers((node,))
    if pod.advances or cluster.candidates_for(pod) is not None:
        look = _Look(cluster, pod, ask, node)
        fleet, decision, number = look.alone, look.decide(), np.zeros(1, dtype=np.int64)
    else:
        fleet, decision = cluster.fleet, decide_among(cluster, ask, open_among(cluster, pod, number))
    if decision.placement is None:
        return False
    journal.filtered(pod.uid, keep_lines(fleet, decision, number))
    return True


def decide_among(cluster: Cluster, ask: Ask, candidates: Codes) -> Decision:
    """Decide as if there were only these nodes."""
    return decide(cluster.fleet, ask, cluster.rules_for(ask), now=cluster.now(), candidates=candidates)


def open_among(cluster: Cluster, pod: Pod, numbers: Numbers) -> Codes:
    """Return by node number which of these nodes are open to a pod; no other is."""
    hosts = cluster.candidates_for(pod)
    here = numbers[numbers != NOT_HERE]
    candidates: npt.NDArray[np.int8] = np.full(
        cluster.fleet.node_count, CODE_OF[Reason.NOT_A_CANDIDATE], dtype=np.int8
    )
    candidates[here] = FITS if hosts is None else hosts[here]
    return candidates


def decided_for_filter(cluster: Cluster, journal: Journal, ask: Ask, numbers: Numbers) -> Decision | None:
    """Return what was decided when the nodes were filtered, if deciding again would say the same.

    Nothing has changed since, and kube-scheduler dropped neither the best node nor added one. It is asked
    for once: as long as somebody holds a decision, whatever changes has to be copied first.
    """
    last, journal.last_filter = journal.last_filter, None
    if last is None or last.placement is None or last.ask != ask:
        return None
    if not (numbers == cluster.fleet.node_number(last.placement.node)).any():
        return None
    if last.generation != cluster.fleet.generation or cluster.now() - last.at > _SAME_MOMENT_S:
        return None
    known = (numbers != NOT_HERE).all() and (last.node_codes[numbers] == FITS).all()
    return last if known else None


def record_filter(cluster: Cluster, journal: Journal, decision: Decision, candidates: Codes) -> None:
    """Remember what the filter saw: of the best node, or where nothing fits, as a decision of its own."""
    ask, fleet = decision.ask, cluster.fleet
    if decision.placement is not None:
        best = fleet.node_number(decision.placement.node)  # the names in question stay those of the call
        journal.filtered(ask.pod_uid, keep_lines(fleet, decision, np.array([best])))
        return
    journal.checks.refused(fleet, decision)
    journal.checks.waiting.add(ask)
    explanation = explain_decision(fleet, decision, cluster.rules_for(ask), most_nodes=_NODES_KEPT, why=False)
    journal.filtered(ask.pod_uid, lambda: explanation.nodes)
    case = _case_of(cluster, decision, candidates)
    journal.history.add(
        DecisionRecord(
            at=decision.at,
            pod=ask.pod,
            pod_uid=ask.pod_uid,
            outcome=PodOutcome.PENDING,
            explanation=explanation,
        ),
        case,
    )


def _case_of(cluster: Cluster, decision: Decision, candidates: Codes) -> Callable[[], Case] | None:
    """Take down what a refusal was decided on; in a large fleet that would be too much."""
    if len(cluster.fleet.columns.row_of) > MOST_CARDS:
        return None
    rules = cluster.rules_for(decision.ask)
    question = Question(ask=decision.ask, rules=rules, at=decision.at, most_nodes=_NODES_KEPT, why=False)
    case = take_case(cluster.fleet, question, candidates)
    return lambda: case


def _sort_nodes(
    cluster: Cluster, args: ExtenderArgs, numbers: Numbers, decision: Decision
) -> ExtenderFilterResult:
    here = numbers != NOT_HERE
    codes = np.where(here, decision.node_codes[numbers], np.int8(CODE_OF[Reason.NOT_A_CANDIDATE]))
    fits = codes == FITS
    if fits.all():
        return _answer(args, None, {}, {})
    resolvable = may_be_resolved(cluster.fleet, decision)[numbers] & here
    failed: dict[str, str] = {}
    beyond_help = dict.fromkeys(compress(args.names, ~here), UNKNOWN_NODE)
    for code in sorted(set(codes[here & ~fits].tolist())):
        refused, text = here & (codes == code), REFUSALS[code]
        failed |= dict.fromkeys(compress(args.names, refused & resolvable), text)
        beyond_help |= dict.fromkeys(compress(args.names, refused & ~resolvable), text)
    return _answer(args, fits, failed, beyond_help)


def _answer(
    args: ExtenderArgs,
    fits: npt.NDArray[np.bool_] | None,
    failed: dict[str, str],
    beyond_help: dict[str, str],
) -> ExtenderFilterResult:
    """Answer in the form of the request, names for names, full objects for full objects; None: all fit."""
    nodes = names = None
    if args.nodes is None:
        names = list(args.names if fits is None else compress(args.names, fits))
    else:
        nodes = NodeList(items=list(args.nodes.items if fits is None else compress(args.nodes.items, fits)))
    return ExtenderFilterResult(
        nodes=nodes, node_names=names, failed_nodes=failed, failed_and_unresolvable_nodes=beyond_help
    )


def points_of(decision: Decision, numbers: Numbers) -> Numbers:
    """Spread the ranks of fitting nodes over 9 (the best) to 0 (the last); nodes that do not fit get 0."""
    fits = ((numbers != NOT_HERE) & (decision.node_codes[numbers] == FITS)).nonzero()[0]
    points = np.zeros(len(numbers), dtype=np.int64)
    if not len(fits):
        return points
    scores = decision.scores[numbers[fits]]
    order = scores.argsort()[::-1]
    ranked = scores[order]
    ranks = np.zeros(len(fits), dtype=np.int64)  # equal scores have the same
    np.cumsum(ranked[1:] != ranked[:-1], out=ranks[1:])
    most = MAX_SCORE - 1
    points[fits[order]] = most - most * ranks // max(int(ranks[-1]), 1)
    return points
