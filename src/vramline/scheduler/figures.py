"""What the metrics say about a cluster at this moment."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter

import numpy as np

from vramline.explain.figures import reserved_in
from vramline.explain.ghosts import find_ghosts
from vramline.explain.history import History
from vramline.model.claim import Claim
from vramline.model.cluster import Cluster
from vramline.model.columns import NEVER
from vramline.model.observation import Observation, Unknown
from vramline.model.pod import PodPhase
from vramline.telemetry.metrics import Gauge, Sample

__all__ = ["count_figures"]

_MOST_CLAIMS = 5_000
"""How many claims have samples of their own."""
_AT_ONCE = 128
"""Cards whose figures are of one moment; a large cluster's are counted part by part."""


def count_figures(
    cluster: Cluster, history: History | None = None, *, evictions: int | None = None
) -> Iterator[Sample]:
    """Yield every sample of one scrape, those of a metric together.

    `evictions` is None where nobody is ever sent away. The cluster may change between two samples.
    """
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
    cards = sorted(fleet.columns.row_of)
    ghosts = _ghosts(cluster)
    for start in range(0, len(cards), _AT_ONCE):
        yield from _parts(cluster, cards[start : start + _AT_ONCE], ghosts)
    for start in range(0, len(cards), _AT_ONCE):
        yield from _ages(cluster, cards[start : start + _AT_ONCE])


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
    fresh = fleet.columns.fresh(now=now, max_age_s=max_age_s).tolist()
    for uuid, row in fleet.columns.row_of.items():
        seen = fleet.observation(uuid)
        if seen is not None:
            found[seen.source.value, "counts" if fresh[row] else "stale"] += 1
    yield from (Sample(Gauge.OBSERVED_GPUS, count, labels) for labels, count in sorted(found.items()))


def _pods(cluster: Cluster) -> Iterator[Sample]:
    """Yield what pods claimed, and were seen to use; a cluster may have more pods than anybody scrapes."""
    claims = sorted(cluster.fleet.ledger, key=attrgetter("pod", "gpu"))
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


def _ghosts(cluster: Cluster) -> Counter[str]:
    """Return by card what processes of pods that ended still hold."""
    held: Counter[str] = Counter()
    max_age_s = cluster.rules_for(None).max_age_s
    for ghost in find_ghosts(cluster.fleet, now=cluster.now(), max_age_s=max_age_s, after_s=-math.inf):
        held[ghost.gpu] += ghost.mib or 0
    return held


def _parts(cluster: Cluster, cards: Sequence[str], ghosts: Counter[str]) -> Iterator[Sample]:
    """Yield the parts of cards that are known; what nobody saw has no sample rather than a zero."""
    fleet, columns = cluster.fleet, cluster.fleet.columns
    there = [row for uuid in cards if (row := columns.row_of.get(uuid)) is not None]
    rows = np.array(there, dtype=np.int64)
    fresh = columns.fresh(now=cluster.now(), max_age_s=cluster.rules_for(None).max_age_s)[rows]
    figures = zip(
        [columns.card(row) for row in there],
        fresh.tolist(),
        (columns.promise[rows] + fleet.margin).tolist(),
        np.where(fresh, columns.held[rows], columns.claimed[rows]).tolist(),
        np.where(fresh, columns.held_releasing[rows], columns.claimed_releasing[rows]).tolist(),
        columns.unmanaged[rows].tolist(),
        np.where(fresh, columns.free_observed[rows], columns.free_books[rows]).tolist(),
        (columns.free_books[rows] - columns.free_observed[rows]).tolist(),
        strict=True,
    )
    for gpu, is_fresh, usable, held, releasing, unmanaged, free, drift in figures:
        seen = fleet.observation(gpu.uuid)
        parts = (
            ("total", gpu.total),
            ("usable", usable),
            ("margin", fleet.margin),
            ("held", held),
            ("releasing", releasing),
            ("reserved", reserved_in(fleet.ledger.of_card(gpu.uuid))),
            ("unmanaged", unmanaged if is_fresh else None),
            ("used", None if seen is None or isinstance(seen.used, Unknown) else seen.used),
            ("free", free),
            ("ghost", ghosts[gpu.uuid] if is_fresh else None),
            ("drift", drift if is_fresh else None),
        )
        for part, mib in parts:
            if mib is not None:
                yield Sample(Gauge.GPU_MIB, mib, (gpu.node, gpu.uuid, part))


def _ages(cluster: Cluster, cards: Sequence[str]) -> Iterator[Sample]:
    """Yield how old the last looks at cards are that told how much is in use."""
    columns, now = cluster.fleet.columns, cluster.now()
    for uuid in cards:
        row = columns.row_of.get(uuid)
        seen_at = NEVER if row is None else float(columns.observed_at[row])
        if row is not None and seen_at != NEVER:
            yield Sample(Gauge.OBSERVATION_AGE, now - seen_at, (columns.card(row).node, uuid))
