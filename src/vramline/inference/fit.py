"""Where a model fits now: every degree of tensor parallelism on every kind of card, by `decide`.

All GPUs of one way to serve a model are of one kind and on one node. What a model needs depends on the card
(an engine takes larger batches on larger ones), so each kind is estimated for itself.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from vramline.decide.engine import decide
from vramline.errors import RequestError
from vramline.explain.decision import explain_decision
from vramline.inference.card_kinds import CardKind, are_linked, kinds_of, wishes_for
from vramline.inference.estimate import Estimate, Mibs, Model, Plan, estimate
from vramline.model.ask import Ask, MibSize
from vramline.model.cluster import Cluster
from vramline.model.decision import Decision
from vramline.model.fleet import Fleet
from vramline.model.pod import HostNeeds, Pod
from vramline.model.reason import FITS, Reason
from vramline.units import MAX_MIB, Mib

__all__ = ["Bound", "CardKind", "Fit", "FitQuestion", "Way", "find_ways", "try_way"]

_NODES_NAMED = 20
_POD = "fit/model"


class Bound(enum.StrEnum):
    """Which figure of the estimate must fit."""

    LOW = "low"
    EXPECTED = "expected"
    HIGH = "high"


class FitQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be served, and what its pod needs besides GPUs."""

    model: Model
    plan: Plan
    degrees: tuple[int, ...] = ()
    """Degrees of tensor parallelism to try; empty: every power of two that the model and a node allow."""
    bound: Bound = Bound.HIGH
    host: HostNeeds = HostNeeds()


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """One degree on one kind of card: which nodes take it now, or why none does."""

    tp: int
    pp: int
    card: CardKind
    gpus: int
    need: Mibs
    """On each GPU."""
    ask_mib: int
    """What is asked for on each GPU."""
    fits: bool
    nodes: tuple[str, ...]
    """Nodes that hold it now, best first, at most twenty."""
    nodes_that_fit: int
    gpu_uuids: tuple[str, ...]
    """The cards it would get on the best node."""
    reason: Reason | None
    message: str
    warnings: tuple[str, ...]
    flags: tuple[str, ...]
    """Engine flags under which the need holds."""
    linked: bool | None = None
    """Whether those cards reach each other over NVLink; None: a single one, or nobody told."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A way, and the decision behind it."""

    way: Way
    decision: Decision
    ask: Ask


def find_ways(question: FitQuestion, cluster: Cluster) -> list[Fit]:
    """Try every degree on every kind of card; fewest GPUs first, then the smaller card."""
    kinds = _kinds_in(cluster)
    fits = []
    for tp in _degrees(question, cluster):
        for kind in sorted(kinds):
            plan = msgspec.structs.replace(question.plan, tp=tp)
            fits.append(try_way(question, cluster, plan, kind))
    return fits


def try_way(question: FitQuestion, cluster: Cluster, plan: Plan, kind: CardKind) -> Fit:
    """Estimate for this kind of card, and decide."""
    plan = msgspec.structs.replace(plan, card_mib=kind.total_mib, card_model=kind.model)
    needed = estimate(question.model, plan)
    mib = getattr(needed.per_gpu, question.bound.value)
    size = MibSize(Mib(min(max(mib, 1), MAX_MIB)))
    bare = Ask(pod=_POD, pod_uid=_POD, gpus=plan.tp * plan.pp, size=size)
    pod = Pod(namespace="fit", name="model", uid=_POD, ask=bare, host=question.host)
    rules, candidates = cluster.rules_for(bare), cluster.candidates_for(pod)
    asks = [
        msgspec.structs.replace(bare, constraints=wishes)
        for wishes in wishes_for(cluster.fleet, _kinds_in(cluster), kind, bare.gpus)
    ]
    decisions = [decide(cluster.fleet, ask, rules, now=cluster.now(), candidates=candidates) for ask in asks]
    best = next((each for each in decisions if each.placement is not None), decisions[-1])
    return Fit(_tell(cluster, needed, kind, (best, decisions[-1])), best, best.ask)


def _tell(cluster: Cluster, needed: Estimate, kind: CardKind, decisions: tuple[Decision, Decision]) -> Way:
    """Put a decision into words, and the one about any cards of the kind, linked or not."""
    decision, of_any = decisions
    fleet, placement = cluster.fleet, decision.placement
    rules = cluster.rules_for(decision.ask)
    told = explain_decision(fleet, decision, rules, most_nodes=0, why=False)
    names = list(dict.fromkeys([*_nodes_of(fleet, decision), *_nodes_of(fleet, of_any)]))[:_NODES_NAMED]
    size = decision.ask.size
    return Way(
        tp=needed.tp,
        pp=needed.pp,
        card=kind,
        gpus=decision.ask.gpus,
        need=needed.per_gpu,
        ask_mib=size.mib if isinstance(size, MibSize) else 0,
        fits=placement is not None,
        nodes=tuple(names) if placement is not None else (),
        nodes_that_fit=int(np.sum(of_any.node_codes == FITS)) if placement is not None else 0,
        gpu_uuids=() if placement is None else tuple(share.uuid for share in placement.gpus),
        reason=told.reason,
        message=told.message,
        warnings=tuple(told.warnings),
        flags=needed.flags,
        linked=None if placement is None else are_linked(fleet, (share.uuid for share in placement.gpus)),
    )


def _nodes_of(fleet: Fleet, decision: Decision) -> list[str]:
    """Return the nodes that fit, best first."""
    fitting = np.flatnonzero(decision.node_codes == FITS)
    order = np.lexsort((fleet.rank()[fitting], -decision.scores[fitting]))
    return [fleet.name_of(int(number)) for number in fitting[order][:_NODES_NAMED]]


def _kinds_in(cluster: Cluster) -> dict[CardKind, tuple[str, ...]]:
    """Return the cards of the cluster by kind; raises where there is none."""
    kinds = kinds_of(cluster.fleet)
    if not kinds:
        raise RequestError(
            subject="fit", problem="there is no GPU in this cluster", accepted="a cluster with GPU nodes"
        )
    return kinds


def _degrees(question: FitQuestion, cluster: Cluster) -> Iterator[int]:
    """Yield the degrees to try: those asked for, or powers of two up to the largest node."""
    if question.degrees:
        yield from question.degrees
        return
    largest = max((len(node.gpus) for node in cluster.fleet.nodes), default=1)
    architecture, degree = question.model.architecture, 1
    while degree * question.plan.pp <= max(largest, question.plan.pp):
        heads, kv_heads = architecture.heads, architecture.kv_heads
        if heads % degree == 0 and (architecture.latent or kv_heads % degree == 0 or degree % kv_heads == 0):
            yield degree
        degree *= 2
