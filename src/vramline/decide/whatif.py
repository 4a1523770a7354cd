"""Copies of one node of the fleet in which something is different. The fleet itself is never touched.

Whether a node can take an ask depends on that node alone, so a copy of one node is world enough.
"""

from collections.abc import Iterable

import msgspec

from vramline.errors import InvariantError
from vramline.model.claim import Claim
from vramline.model.fleet import Fleet
from vramline.model.observation import Observation, Unknown
from vramline.units import Mib

__all__ = ["copy_node", "copy_with_card_uncordoned", "copy_without_pods"]


def copy_node(fleet: Fleet, name: str, *, card: str | None = None) -> Fleet:
    """Return a fleet that consists of one node, its cards, their claims and what was seen of them.

    With `card` the node has that card alone.
    """
    node = fleet.node(name)
    if node is None:
        raise InvariantError(f"no node {name} in the fleet")
    if card is not None:
        node = msgspec.structs.replace(node, gpus=tuple(gpu for gpu in node.gpus if gpu.uuid == card))
    copy = Fleet(fleet.margin)
    copy.set_node(node)
    copy.set_requests(name, fleet.requests_on(name))
    for gpu in node.gpus:
        copy.adopt(fleet.ledger.of_card(gpu.uuid))
        seen = fleet.observation(gpu.uuid)
        if seen is not None:
            copy.observe(gpu.uuid, seen)
    return copy


def copy_without_pods(fleet: Fleet, name: str, pod_uids: Iterable[str]) -> Fleet:
    """Return a copy of a node in which these pods are gone, and their memory with them."""
    copy, gone = copy_node(fleet, name), set(pod_uids)
    requests = fleet.requests_on(name)
    for pod_uid in gone:
        for claim in copy.remove_claims(pod_uid):
            seen = copy.observation(claim.gpu)
            if seen is not None:
                copy.observe(claim.gpu, _seen_without(seen, claim, requests.get(pod_uid, 0)))
    copy.set_requests(name, {uid: mib for uid, mib in requests.items() if uid not in gone})
    return copy


def copy_with_card_uncordoned(fleet: Fleet, name: str, uuid: str) -> Fleet:
    """Return a copy of a node in which one card is in service again."""
    copy = copy_node(fleet, name)
    node = copy.node(name)
    if node is not None:
        gpus = tuple(
            msgspec.structs.replace(gpu, cordoned=False) if gpu.uuid == uuid else gpu for gpu in node.gpus
        )
        copy.set_node(msgspec.structs.replace(node, gpus=gpus))
    return copy


def _seen_without(seen: Observation, claim: Claim, requested: int) -> Observation:
    """Return what the card would say had the pod of `claim` left it, which `requested` memory of the machine.

    Gone is what the memory law explained by this pod: the use of its listed processes, or else, where
    the list is missing or has gaps and the pod ran before the look, its claim.
    """
    used, processes = seen.used, seen.processes
    gone = claim.mib if claim.ran_before(seen.at) else 0
    if not isinstance(processes, Unknown):
        known = [
            process.used
            for process in processes
            if process.pod_uid == claim.pod_uid and not isinstance(process.used, Unknown)
        ]
        complete = not any(isinstance(p.used, Unknown) or isinstance(p.pod_uid, Unknown) for p in processes)
        gone = sum(known) if known or complete else gone
        processes = tuple(process for process in processes if process.pod_uid != claim.pod_uid)
    if claim.ran_before(seen.at):
        gone = max(gone, gone + requested - claim.mib)
    if not isinstance(used, Unknown):
        used = Mib(max(0, used - gone))
    return msgspec.structs.replace(seen, used=used, processes=processes)
