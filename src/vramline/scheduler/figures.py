"""What the metrics say about a cluster at this moment."""

from collections import Counter
from collections.abc import Iterator

from vramline.explain.cards import card_state
from vramline.explain.ghosts import ghosts_on
from vramline.explain.history import History
from vramline.model.claim import Claim
from vramline.model.cluster import Cluster
from vramline.model.observation import Observation, Unknown
from vramline.model.pod import PodPhase
from vramline.telemetry.metrics import Gauge, Sample

__all__ = ["count_figures"]

_MOST_CLAIMS = 5_000
"""How many claims have samples of their own."""


def count_figures(
    cluster: Cluster, history: History | None = None, *, evictions: int | None = None
) -> Iterator[Sample]:
    """Yield every sample of one scrape. `evictions` is None where nobody is ever sent away."""
    if history is not None:
        yield from _decisions(cluster, history)
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
    yield from _sources(cluster)
    yield from _pods(cluster)
    for uuid in sorted(fleet.columns.row_of):
        yield from _card(cluster, uuid)


def _decisions(cluster: Cluster, history: History) -> Iterator[Sample]:
    """Count what was decided, and why pods wait; one that nobody tried yet has no reason."""
    for (outcome, reason), count in sorted(history.made.items(), key=str):
        yield Sample(Gauge.DECISIONS, count, (outcome.value, reason or ""))
    waiting = [pod for pod in cluster.pods.values() if pod.ask is not None and pod.phase is PodPhase.PENDING]
    reasons: Counter[str] = Counter()
    for pod in waiting:
        record = history.latest(pod.uid)
        reasons[(record.explanation.reason if record is not None else None) or ""] += 1
    yield from (Sample(Gauge.PENDING, count, (reason,)) for reason, count in sorted(reasons.items()))
    ages = [cluster.now() - pod.created_at for pod in waiting if pod.created_at is not None]
    yield Sample(Gauge.PENDING_OLDEST, max(ages, default=0.0))


def _state_of(problem: str, gpus: object) -> str:
    return problem or ("usable" if gpus else "without GPUs")


def _sources(cluster: Cluster) -> Iterator[Sample]:
    """Count the cards by who looked at them last; a look that no longer counts is not the same."""
    fleet, now, max_age_s = cluster.fleet, cluster.now(), cluster.rules_for(None).max_age_s
    found: Counter[tuple[str, str]] = Counter()
    for uuid, row in fleet.columns.row_of.items():
        seen = fleet.observation(uuid)
        if seen is not None:
            fresh = fleet.columns.is_fresh(row, now=now, max_age_s=max_age_s)
            found[seen.source.value, "counts" if fresh else "stale"] += 1
    yield from (Sample(Gauge.OBSERVED_GPUS, count, labels) for labels, count in sorted(found.items()))


def _pods(cluster: Cluster) -> Iterator[Sample]:
    """Yield what pods claimed, and were seen to use; a cluster may have more pods than anybody scrapes."""
    claims = sorted(cluster.fleet.ledger, key=lambda claim: (claim.pod, claim.gpu))
    yield Sample(Gauge.PODS_NOT_SHOWN, len({claim.pod_uid for claim in claims[_MOST_CLAIMS:]}))
    for claim in claims[:_MOST_CLAIMS]:
        namespace, _, name = claim.pod.partition("/")
        yield Sample(Gauge.POD_MIB, claim.mib, (namespace, name, claim.gpu, "claimed"))
        used = _used_by(claim, cluster.fleet.observation(claim.gpu))
        if used is not None:
            yield Sample(Gauge.POD_MIB, used, (namespace, name, claim.gpu, "used"))


def _used_by(claim: Claim, seen: Observation | None) -> int | None:
    """Return what a pod was seen to use on a card; None: the card does not tell whose its processes are."""
    if seen is None or isinstance(seen.processes, Unknown):
        return None
    if any(isinstance(process.pod_uid, Unknown) for process in seen.processes):
        return None
    own = [process.used for process in seen.processes if process.pod_uid == claim.pod_uid]
    return None if any(isinstance(used, Unknown) for used in own) else sum(map(int, own))  # type: ignore[arg-type]  # no Unknown is left


def _ghosts(cluster: Cluster, uuid: str) -> int:
    """Return what processes of pods that ended still hold."""
    ghosts = ghosts_on(cluster.fleet, uuid, now=cluster.now(), max_age_s=cluster.rules_for(None).max_age_s)
    return sum(ghost.mib or 0 for ghost in ghosts)


def _drift(cluster: Cluster, uuid: str) -> int:
    """Return by how much the books promise more than the card holds."""
    account = cluster.fleet.account(uuid)
    return account.free_by_books - account.free


def _card(cluster: Cluster, uuid: str) -> Iterator[Sample]:
    """Parts that are known; what nobody saw has no sample rather than a zero."""
    card = card_state(cluster.fleet, uuid, now=cluster.now(), max_age_s=cluster.rules_for(None).max_age_s)
    parts = {
        "total": card.total_mib,
        "usable": card.usable_mib,
        "margin": card.margin_mib,
        "held": card.held_mib,
        "releasing": card.releasing_mib,
        "reserved": card.reserved_mib,
        "unmanaged": card.unmanaged_mib,
        "used": card.used_mib,
        "free": card.free_mib,
        "ghost": _ghosts(cluster, uuid) if card.basis == "observed" else None,
        "drift": _drift(cluster, uuid) if card.basis == "observed" else None,
    }
    for part, mib in parts.items():
        if mib is not None:
            yield Sample(Gauge.GPU_MIB, mib, (card.node, card.uuid, part))
    if card.observed_age_s is not None:
        yield Sample(Gauge.OBSERVATION_AGE, card.observed_age_s, (card.node, card.uuid))
