"""What the metrics say about a cluster at this moment."""

from collections import Counter
from collections.abc import Iterator

from vramline.explain.cards import card_state
from vramline.model.cluster import Cluster
from vramline.telemetry.metrics import Gauge, Sample

__all__ = ["count_figures"]


def count_figures(cluster: Cluster, *, evictions: int | None = None) -> Iterator[Sample]:
    """Yield every sample of one scrape. `evictions` is None where nobody is ever sent away."""
    if evictions is not None:
        yield Sample(Gauge.EVICTIONS, evictions)
    yield Sample(Gauge.PREEMPTORS, sum(pod.preempts_on is not None for pod in cluster.pods.values()))
    fleet = cluster.fleet
    yield Sample(Gauge.LEADING, cluster.leads())
    yield Sample(Gauge.DISAGREEMENTS, len(cluster.disagreements()))
    states = Counter(_state_of(node.problem.kind if node.problem else "", node.gpus) for node in fleet.nodes)
    yield from (Sample(Gauge.NODES, count, (state,)) for state, count in sorted(states.items()))
    claims = Counter(claim.state.value for claim in fleet.ledger)
    yield from (Sample(Gauge.CLAIMS, count, (state,)) for state, count in sorted(claims.items()))
    phases = Counter(pod.phase.value for pod in cluster.pods.values() if pod.ask is not None)
    yield from (Sample(Gauge.PODS, count, (phase,)) for phase, count in sorted(phases.items()))
    for uuid in sorted(fleet.columns.row_of):
        yield from _card(cluster, uuid)


def _state_of(problem: str, gpus: object) -> str:
    return problem or ("usable" if gpus else "without GPUs")


def _card(cluster: Cluster, uuid: str) -> Iterator[Sample]:
    """Parts that are known; what nobody saw has no sample rather than a zero."""
    card = card_state(cluster.fleet, uuid, now=cluster.now(), max_age_s=cluster.rules_for(None).max_age_s)
    parts = {
        "total": card.total_mib,
        "usable": card.usable_mib,
        "margin": card.margin_mib,
        "held": card.held_mib,
        "releasing": card.releasing_mib,
        "unmanaged": card.unmanaged_mib,
        "used": card.used_mib,
        "free": card.free_mib,
    }
    for part, mib in parts.items():
        if mib is not None:
            yield Sample(Gauge.GPU_MIB, mib, (card.node, card.uuid, part))
    if card.observed_age_s is not None:
        yield Sample(Gauge.OBSERVATION_AGE, card.observed_age_s, (card.node, card.uuid))
