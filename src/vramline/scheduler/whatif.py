"""What if these pods came now? Where they would go, how many fit, what blocks the rest.

Tried on a copy of the fleet by the same `decide`; the cluster does not notice.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from vramline.decide.engine import decide
from vramline.decide.reserve import reservation_of
from vramline.errors import RequestError
from vramline.explain.decision import explain_decision
from vramline.explain.whatif import Blocked, WhatIfAnswer
from vramline.model.ask import Ask, MibSize
from vramline.model.cluster import Cluster
from vramline.model.decision import Placement
from vramline.model.pod import Pod
from vramline.units import MAX_MIB, Mib
from vramline.wire.decoding import convert_document
from vramline.wire.kubernetes import PodObject, WorkloadObject
from vramline.wire.pods import read_pod
from vramline.wire.workloads import count_pods, expand_workloads

__all__ = ["answer_what_if"]

_SUBJECT = "what-if"
_FORMS = (
    "a v1 Pod, Deployment, StatefulSet, ReplicaSet or Job that asks for a GPU,"
    ' or {"pods": 5, "mib": 8000, "gpus": 1}'
)
_WORKLOADS = ("Deployment", "StatefulSet", "ReplicaSet", "Job")
_MOST_PODS = 1_000


class _Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """So many equal pods."""

    pods: Annotated[int, Meta(ge=1, le=_MOST_PODS)] = 1
    mib: Annotated[int, Meta(ge=1, le=MAX_MIB)]
    gpus: Annotated[int, Meta(ge=1, le=64)] = 1


def answer_what_if(cluster: Cluster, document: dict[str, Any]) -> WhatIfAnswer:
    """Answer a manifest or a short question; raise `RequestError` for what is neither."""
    if "metadata" in document or "spec" in document:
        found, count = _read_manifest(document)
        pod = read_pod(found)
        if pod.ask is None:
            raise RequestError(subject=f"Pod {pod.key}", problem="asks for no GPU", accepted=_FORMS)
        return _try_pods(cluster, pod, pod.ask, count)
    if "mib" not in document:
        raise RequestError(subject=_SUBJECT, problem="is no question", accepted=_FORMS)
    question = convert_document(document, _Question, subject=_SUBJECT)
    ask = Ask(pod="what-if/pod", pod_uid="", gpus=question.gpus, size=MibSize(Mib(question.mib)))
    pod = Pod(namespace="what-if", name="pod", uid="", ask=ask)
    return _try_pods(cluster, pod, ask, question.pods)


def _read_manifest(document: dict[str, Any]) -> tuple[PodObject, int]:
    """Return a pod, and how many like it are asked about."""
    if document.get("kind") not in _WORKLOADS:
        return convert_document(document, PodObject, subject=_SUBJECT), 1
    workload = convert_document(document, WorkloadObject, subject=_SUBJECT)
    count = count_pods(workload)
    if not 1 <= count <= _MOST_PODS:
        raise RequestError(
            subject=_SUBJECT, field="spec", problem=f"makes {count} pods", accepted=f"1 to {_MOST_PODS}"
        )
    return next(iter(expand_workloads([workload]))), count


def _try_pods(cluster: Cluster, pod: Pod, ask: Ask, count: int) -> WhatIfAnswer:
    fleet, now = cluster.fleet.copy(), cluster.now()
    rules, candidates = cluster.rules_for(ask), cluster.candidates_for(pod)
    placements: list[Placement] = []
    warnings: dict[str, None] = {}
    blocked = None
    for number in range(count):
        each = msgspec.structs.replace(ask, pod_uid=f"what-if-{number}")
        decision = decide(fleet, each, rules, now=now, candidates=candidates)
        explanation = explain_decision(
            fleet,
            decision,
            rules,
            most_nodes=5,
            why=decision.placement is None,
            candidates=candidates,
        )
        if decision.placement is None:
            blocked = Blocked(pods=count - number, explanation=explanation)
            break
        warnings.update(dict.fromkeys(explanation.warnings))
        placements.append(decision.placement)
        fleet.reserve(reservation_of(decision))
    by_node: dict[str, int] = {}
    for placement in placements:
        by_node[placement.node] = by_node.get(placement.node, 0) + 1
    return WhatIfAnswer(
        asked=count,
        fit=len(placements),
        by_node=by_node,
        placements=placements,
        warnings=list(warnings),
        blocked=blocked,
    )
