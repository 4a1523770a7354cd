"""Scheduler processes over one store, and what must hold of the store at every moment."""

from kubernetes_builders import node_object, pod_object, report
from scheduler.memory_store import MemoryStore
from vramline.model.rules import Rules
from vramline.scheduler.commit import Committer
from vramline.scheduler.live import LiveState
from vramline.wire import keys
from vramline.wire.allocation import decode_allocation
from vramline.wire.kubernetes import PodObject

__all__ = ["CARD_MIB", "NODES", "PROMISE", "Replica", "check_books", "claims_in", "gpu_pod", "promised"]

NODES = ("n1", "n2")
CARD_MIB = 32_600
PROMISE = CARD_MIB - 100


class Replica:
    """One scheduler process: its state and its committer, with an epoch of its own."""

    def __init__(self, store: MemoryStore, *, epoch: int = 1) -> None:
        self.now = 1_000.0
        self.live = LiveState(Rules(), clock=lambda: self.now)
        for name in NODES:
            card = {"uuid": f"GPU-{name}", "index": 0, "totalMiB": CARD_MIB}
            self.live.set_report(report(card, node=name))
            self.live.set_node(node_object(name))
        store.watch(self.live)
        self.epoch: int | None = epoch
        self.committer = Committer(self.live, store, lambda: self.epoch, apart_s=0.0)


def gpu_pod(number: int, mib: int = 8_000, *, tokens: str = "") -> PodObject:
    named = {keys.RESERVATION: tokens} if tokens else {}
    return pod_object(
        annotations={keys.KAI_MEMORY: str(mib), **named},
        meta={"name": f"p{number}", "namespace": "ns", "uid": f"uid-{number}"},
    )


def promised(store: MemoryStore, node: str) -> int:
    ledger = store.ledgers.get(node)
    return sum(claim.mib for claim in ledger.claims) if ledger else 0


def usable_promises(store: MemoryStore, node: str) -> int:
    """What a node's ledger promises to pods that could ever use it: a pod bound elsewhere never will."""
    ledger = store.ledgers.get(node)
    claims = ledger.claims if ledger else ()
    return sum(claim.mib for claim in claims if store.bound_to.get(claim.pod_uid, node) == node)


def check_books(store: MemoryStore) -> None:
    """No card is over-promised, and every bound pod agrees with its node's ledger."""
    for node in NODES:
        assert usable_promises(store, node) <= PROMISE
    for uid, pod in store.pods.items():
        node = (pod.spec.node_name if pod.spec else None) or ""
        if not node:
            continue
        told = decode_allocation((pod.metadata.annotations or {})[keys.ALLOCATION], subject="pod").gpus
        stored = [claim for claim in store.ledgers[node].claims if claim.pod_uid == uid]
        assert [(s.uuid, s.mib) for s in told] == [(c.gpu, c.mib) for c in stored]


def claims_in(live: LiveState) -> set[tuple[str, str, int]]:
    return {(claim.pod_uid, claim.gpu, claim.mib) for claim in live.fleet.ledger}
