"""What kube-scheduler checks before GPUs matter: readiness, cordons, taints, affinity, CPU, memory, pods.

Used by the embedded cluster, and to guess ahead of kube-scheduler. Rules that depend on the pod's wishes
alone are computed once for all pods with the same wishes (`refuse_by_wishes`), the rest is arithmetic on
arrays (`refuse_by_room`).
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramline.model.fleet import Fleet
from vramline.model.host import HostColumns
from vramline.model.node import Node, Taint
from vramline.model.pod import HostNeeds, SelectorTerm, Toleration
from vramline.model.reason import CODE_OF, FITS, Reason

__all__ = ["Rooms", "host_refusal", "refuse_by_pool", "refuse_by_room", "refuse_by_wishes"]

Codes = npt.NDArray[np.int8]

_MOST_NEEDS = 512
"""For so many different needs of CPU and memory it is kept which nodes have room."""

_FEW = 16
"""So many nodes are looked at one by one: quicker than by array."""

_NO_PLACE, _NO_CPU, _NO_MEMORY = (
    np.int8(CODE_OF[reason])
    for reason in (Reason.TOO_MANY_PODS, Reason.INSUFFICIENT_CPU, Reason.INSUFFICIENT_MEMORY)
)


def refuse_by_wishes(fleet: Fleet, needs: HostNeeds) -> Codes:
    """Return by node number FITS or why the node's state or labels rule it out for these wishes."""
    codes = np.full(fleet.node_count, CODE_OF[Reason.NOT_A_CANDIDATE], dtype=np.int8)
    for node in fleet.nodes:
        number = fleet.node_number(node.name)
        reason = host_refusal(node, needs)
        codes[number] = FITS if reason is None else CODE_OF[reason]
    return codes


def refuse_by_room(codes: Codes, hosts: HostColumns, needs: HostNeeds) -> Codes:
    """Return `codes` with the nodes refused as well that lack CPU, memory or a place for one more pod."""
    return _refuse_by_room(codes, hosts, needs, slice(len(codes)))


class Rooms:
    """Does the same, and looks again only at nodes whose room has changed since the same was needed."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int, int], _Room] = {}

    def refuse(self, codes: Codes, hosts: HostColumns, needs: HostNeeds) -> Codes:
        """Return what `refuse_by_room` would."""
        key = (id(codes), needs.cpu_milli, needs.memory_bytes)  # kept with them, so nothing else has this id
        known = self._kept.get(key)
        if known is None or known.hosts is not hosts:
            if len(self._kept) >= _MOST_NEEDS:
                self._kept.clear()
            refused = refuse_by_room(codes, hosts, needs)
        else:
            refused, nodes = known.refused, hosts.changes.since(known.seen)
            nodes = nodes[nodes < len(codes)]
            if len(nodes) <= _FEW:
                for node in nodes.tolist():
                    refused[node] = _refuse_one_by_room(int(codes[node]), hosts, needs, node)
            else:
                refused[nodes] = _refuse_by_room(codes[nodes], hosts, needs, nodes)
        self._kept[key] = _Room(codes, hosts, hosts.changes.version, refused)
        return refused.copy()


class _Room(NamedTuple):
    wishes: Codes
    hosts: HostColumns
    seen: int
    refused: Codes


def _refuse_by_room(
    codes: Codes, hosts: HostColumns, needs: HostNeeds, nodes: npt.NDArray[np.int64] | slice
) -> Codes:
    """Do so for some nodes, of which `codes` are."""
    left = hosts.left[:, nodes] if isinstance(nodes, slice) else hosts.left.take(nodes, axis=1)
    lacks = left < np.array([[needs.cpu_milli], [needs.memory_bytes], [1]])
    if not np.count_nonzero(lacks):
        return codes.copy()
    cpu, memory, place = lacks
    reason: Codes = memory * _NO_MEMORY
    np.copyto(reason, _NO_CPU, where=cpu)
    np.copyto(reason, _NO_PLACE, where=place)
    np.copyto(reason, codes, where=codes != FITS)  # what comes last here comes first
    return reason


def _refuse_one_by_room(code: int, hosts: HostColumns, needs: HostNeeds, node: int) -> int:
    """Do so for one node, of which `code` is."""
    if code != FITS:
        return code
    if hosts.pods[node] < 1:
        return int(_NO_PLACE)
    if hosts.cpu_milli[node] < needs.cpu_milli:
        return int(_NO_CPU)
    return int(_NO_MEMORY) if hosts.memory_bytes[node] < needs.memory_bytes else FITS


def refuse_by_pool(codes: Codes, fleet: Fleet, needs: HostNeeds) -> Codes:
    """Return `codes` with the machines refused as well on which GPU claims leave too little memory for a pod.

    It is for GPU pods, on machines whose GPU takes from their memory: what such a pod requests as memory must
    be there as well as what it asks of the card, whichever is more.
    """
    columns = fleet.columns
    if not columns.has_unified or not needs.memory_bytes:
        return codes
    short = columns.unified & (columns.free_books < -(-needs.memory_bytes // 2**20))
    nodes = columns.node_of_block[columns.block[short]]
    nodes = nodes[nodes >= 0]
    codes = codes.copy()
    codes[nodes[codes[nodes] == FITS]] = CODE_OF[Reason.INSUFFICIENT_MEMORY]
    return codes


def host_refusal(node: Node, needs: HostNeeds) -> Reason | None:
    """Return why a node is out of the question for a pod before room is counted, or None."""
    if not node.ready:
        return Reason.NODE_NOT_READY
    if node.cordoned and not _tolerates(
        needs.tolerations, Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
    ):
        return Reason.NODE_CORDONED
    if any(
        taint.effect in {"NoSchedule", "NoExecute"} and not _tolerates(needs.tolerations, taint)
        for taint in node.taints
    ):
        return Reason.UNTOLERATED_TAINT
    return None if _is_wanted(node, needs) else Reason.NODE_AFFINITY_MISMATCH


def _tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    return any(
        toleration.effect in {"", taint.effect}
        and (toleration.key == taint.key or (not toleration.key and toleration.operator == "Exists"))
        and (toleration.operator == "Exists" or toleration.value == taint.value)
        for toleration in tolerations
    )


def _is_wanted(node: Node, needs: HostNeeds) -> bool:
    if any(node.labels.get(key) != value for key, value in needs.node_selector.items()):
        return False
    if not needs.affinity:
        return True
    names = needs.affinity_names or ((),) * len(needs.affinity)
    return any(
        (not allowed or node.name in allowed) and all(_matches(node.labels, term) for term in group)
        for group, allowed in zip(needs.affinity, names, strict=True)
    )


def _matches(labels: dict[str, str], term: SelectorTerm) -> bool:
    value = labels.get(term.key)
    match term.operator:
        case "In":
            return value in term.values
        case "NotIn":
            return value not in term.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(value, term)
        case _:
            return False


def _compares(value: str | None, term: SelectorTerm) -> bool:
    try:
        have, bound = int(value or ""), int(term.values[0])
    except (ValueError, IndexError):
        return False
    return have > bound if term.operator == "Gt" else have < bound
