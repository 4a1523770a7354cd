"""The state of a cluster as plain manifests, and its last decisions with what they were made on."""

import base64
from typing import Any

from vramline import __version__
from vramline.explain.history import DecisionRecord, History
from vramline.explain.replay import JOURNAL_FORMAT, Case, encode_cases
from vramline.model.ask import Ask, MibSize
from vramline.model.claim import Claim
from vramline.model.cluster import Cluster
from vramline.model.node import Node
from vramline.model.pod import Pod, PodPhase
from vramline.wire.ledger_v1alpha1 import GpuLedger, encode_ledger
from vramline.wire.manifests import write_node, write_pod, write_report

__all__ = ["list_cases", "take_snapshot", "write_journal"]

_MOST_DECISIONS = 200


def take_snapshot(cluster: Cluster) -> dict[str, Any]:
    """Return a v1 List of Node, GpuReport, GpuLedger and Pod objects."""
    fleet, now = cluster.fleet, cluster.now()
    items: list[dict[str, Any]] = []
    for node in sorted(fleet.nodes, key=lambda node: node.name):
        items.append(write_node(node, now=now))
        if node.gpus:
            seen = {gpu.uuid: fleet.observation(gpu.uuid) for gpu in node.gpus}
            items.append(write_report(node, {uuid: look for uuid, look in seen.items() if look is not None}))
            items.append(encode_ledger(_ledger_of(cluster, node)))
    for pod in [*cluster.pods.values(), *_ended_pods(cluster)]:
        claims = fleet.ledger.of_pod(pod.uid)
        items.append(write_pod(pod, claims, now=now, ledger_version=fleet.ledger.version))
    return {"apiVersion": "v1", "kind": "List", "items": items}


def list_cases(history: History) -> list[tuple[Case, DecisionRecord]]:
    """Return the last decisions that can be made again, each with what it was made on."""
    kept = history.cases(_MOST_DECISIONS)
    return [(case, record) for case, record in kept if isinstance(case, Case)]


def write_journal(kept: list[tuple[Case, DecisionRecord]]) -> dict[str, Any]:
    """Write decisions down for the `journal` of a snapshot. Takes a while, and no state: for a thread."""
    return {
        "format": JOURNAL_FORMAT,
        "version": __version__,
        "decisions": len(kept),
        "cases": base64.b64encode(encode_cases(kept)).decode(),
    }


def _ledger_of(cluster: Cluster, node: Node) -> GpuLedger:
    claims = tuple(claim for gpu in node.gpus for claim in cluster.fleet.ledger.of_card(gpu.uuid))
    return GpuLedger(node=node.name, claims=claims)


def _ended_pods(cluster: Cluster) -> list[Pod]:
    """Return pods that are gone while their memory is held, as objects that are being deleted."""
    by_pod: dict[str, list[Claim]] = {}
    for claim in cluster.fleet.ledger:
        is_pods = claim.pod_uid not in cluster.pods and claim.until is None
        if is_pods and cluster.fleet.gpu(claim.gpu) is not None:
            by_pod.setdefault(claim.pod_uid, []).append(claim)
    return [_ended_pod(cluster, claims) for claims in by_pod.values()]


def _ended_pod(cluster: Cluster, claims: list[Claim]) -> Pod:
    first = claims[0]
    namespace, _, name = first.pod.partition("/")
    gpu = cluster.fleet.gpu(first.gpu)
    return Pod(
        namespace=namespace,
        name=name,
        uid=first.pod_uid,
        ask=Ask(pod=first.pod, pod_uid=first.pod_uid, gpus=len(claims), size=MibSize(first.mib)),
        phase=PodPhase.RELEASING,
        node=None if gpu is None else gpu.node,
        started_at=first.started_at,
        ended_at=first.ended_at,
    )
