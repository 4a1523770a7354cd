"""The ledgers as the API server last told them, and which pods each of them names."""

from collections.abc import Callable, Iterable, Iterator

from vramline.wire.ledger_v1alpha1 import GpuLedger

__all__ = ["StoredLedgers", "is_older"]


class StoredLedgers:
    """One ledger a node, indexed by the pods that hold claims in it."""

    def __init__(self) -> None:
        self._ledgers: dict[str, GpuLedger] = {}
        self._claimed_on: dict[str, set[str]] = {}
        self._promised_at: dict[str, float] = {}
        self._let_go: dict[str, set[str]] = {}
        self._doubtful: set[str] = set()
        """Nodes of whose claims some may be over, because something changed since that was last judged."""
        self._with_ends: set[str] = set()
        """Nodes that have claims which end by themselves."""

    def __iter__(self) -> Iterator[str]:
        """Yield the nodes that have a ledger."""
        return iter(self._ledgers)

    def __getitem__(self, node: str) -> GpuLedger:
        """Return a node's ledger; an empty one without version where none is stored."""
        return self._ledgers.get(node) or GpuLedger(node=node)

    def newest_epoch(self) -> int:
        """Return the highest epoch that any ledger was written in."""
        return max((ledger.epoch for ledger in self._ledgers.values()), default=0)

    def replace(self, ledger: GpuLedger, *, now: float) -> bool:
        """Take in a ledger; False: it says nothing new, because a watch lags behind or repeats itself."""
        node, known = ledger.node, self._ledgers.get(ledger.node)
        if known is not None and (
            ledger == known or is_older(ledger.resource_version, known.resource_version)
        ):
            return False
        stored = {claim.pod_uid for claim in ledger.claims}
        self._index(node, stored, now)
        self._ledgers[node] = ledger
        if node in self._let_go:
            self._let_go[node] &= stored
        self._doubtful.add(node)
        if any(claim.until is not None for claim in ledger.claims):
            self._with_ends.add(node)
        else:
            self._with_ends.discard(node)
        return True

    def drop(self, node: str, *, now: float) -> None:
        """Forget a ledger that was deleted."""
        self._index(node, set(), now)
        self._ledgers.pop(node, None)
        self._doubtful.discard(node)
        self._with_ends.discard(node)

    def nodes_of(self, pod_uid: str) -> set[str]:
        """Return the nodes whose ledgers name a pod."""
        return self._claimed_on.get(pod_uid, set())

    def promised_before(self, moment: float) -> list[str]:
        """Return the pods that ledgers have named since before a moment, without those of `keep_promise`."""
        return [uid for uid, promised_at in self._promised_at.items() if promised_at <= moment]

    def keep_promise(self, pod_uid: str) -> None:
        """Note that a pod is bound, which it stays."""
        self._promised_at.pop(pod_uid, None)

    def doubt(self, pod_uid: str) -> None:
        """Note that a pod has come to a node, or left one."""
        self._doubtful.update(self.nodes_of(pod_uid))

    def doubt_all(self, pod_uids: Iterable[str]) -> set[str]:
        """Do the same for many pods, and return the nodes whose ledgers name any of them."""
        named = set().union(*filter(None, map(self._claimed_on.get, pod_uids)))
        self._doubtful |= named
        return named

    def overdue(self, judge: Callable[[str], set[str]]) -> dict[str, set[str]]:
        """Return by node the pods whose stored claims are over, as `judge` says of a node.

        Only nodes are judged of which that may have changed: there are thousands, and this is asked often.
        """
        found = {node: judge(node) for node in self._doubtful | self._with_ends}
        self._doubtful = {node for node, over in found.items() if over}
        return {node: found[node] for node in sorted(self._doubtful)}

    def let_go(self, pod_uid: str) -> None:
        """Note that what a pod held is free, although it is stored still."""
        for node in self.nodes_of(pod_uid):
            self._let_go.setdefault(node, set()).add(pod_uid)
            self._doubtful.add(node)

    def are_let_go(self, node: str) -> set[str]:
        """Return the pods whose claims a node's ledger has although they are over."""
        return self._let_go.get(node, set())

    def _index(self, node: str, stored: set[str], now: float) -> None:
        """Remember which pods a node's ledger names, before the ledger is replaced."""
        known = self._ledgers.get(node)
        before = {claim.pod_uid for claim in known.claims} if known is not None else set()
        for uid in before - stored:
            self._claimed_on[uid].discard(node)
            if not self._claimed_on[uid]:
                del self._claimed_on[uid]
                self._promised_at.pop(uid, None)
        for uid in stored - before:
            self._claimed_on.setdefault(uid, set()).add(node)
            self._promised_at.setdefault(uid, now)


def is_older(version: str, known: str) -> bool:
    """Whether a resourceVersion is older than another of the same object; they are numbers since etcd 3."""
    return version.isdigit() and known.isdigit() and int(version) < int(known)
