"""The extender's fourth verb: whom to send away so that a more important pod finds room.

kube-scheduler proposes, for each node, pods without which its own checks would pass; it needs every one of
them, but knows nothing of cards. Vramline answers with those whose memory makes room, and with those of the
proposed ones that the host cannot spare.
"""

from collections.abc import Collection, Iterable

import msgspec

from vramline.decide.preempt import Evictable, choose_victims, leaving_pods
from vramline.model.ask import Ask
from vramline.model.cluster import Cluster
from vramline.model.pod import Pod, PodPhase
from vramline.scheduler.preempter import Preempter
from vramline.wire.decoding import convert_document
from vramline.wire.extender_v1 import ExtenderPreemptionArgs, ExtenderPreemptionResult, MetaPod, MetaVictims
from vramline.wire.kubernetes import PodObject
from vramline.wire.pods import read_pod

__all__ = ["preempt_pods"]

_ENOUGH_NODES = 30
"""So many nodes to choose from are enough: kube-scheduler takes one, and waits meanwhile."""

_THERE = {PodPhase.BOUND, PodPhase.RUNNING}


def preempt_pods(
    cluster: Cluster, args: ExtenderPreemptionArgs, preempter: Preempter | None = None
) -> ExtenderPreemptionResult:
    """Name for each node the pods that have to go; a node where nobody's going would help is left out.

    A pod without a GPU ask gets back what kube-scheduler proposed; for one for which others leave already no
    node is named, so that kube-scheduler waits. Nodes with the fewest violated budgets and
    proposed victims are looked at first, until enough of them can be named.
    """
    pod = read_pod(convert_document(args.pod, PodObject, subject="Pod"))
    if pod.ask is None:
        return ExtenderPreemptionResult(node_name_to_meta_victims=args.victims)
    if preempter is not None and not preempter.may_answer(pod.uid):
        return ExtenderPreemptionResult()
    there: dict[str, dict[str, Pod]] = {name: {} for name in args.victims}
    for each in cluster.pods.values():
        if each.node in there and each.phase is not PodPhase.FINISHED:
            there[each.node][each.uid] = each
    answer: dict[str, MetaVictims] = {}
    for name, proposed in sorted(args.victims.items(), key=lambda each: _harm(each[1])):
        if len(answer) == _ENOUGH_NODES:
            break
        case = _Case(cluster, pod, pod.ask, name, there[name], tuple(each.uid for each in proposed.pods))
        victims = case.victims() if cluster.fleet.node(name) is not None else ()
        if victims:
            kept = sum(uid in victims for uid in case.proposed)
            answer[name] = MetaVictims(
                pods=[MetaPod(uid) for uid in victims],
                num_pdb_violations=min(proposed.num_pdb_violations, kept),
            )
    if preempter is not None:
        preempter.answered(pod.uid, tuple(answer))
    return ExtenderPreemptionResult(node_name_to_meta_victims=answer)


def _harm(proposed: MetaVictims) -> tuple[int, int]:
    return proposed.num_pdb_violations, len(proposed.pods)


class _Case(msgspec.Struct, frozen=True):
    """One node on which a pod could be placed if others left it."""

    cluster: Cluster
    pod: Pod
    ask: Ask
    node: str
    there: dict[str, Pod]
    """The pods on the node by UID."""
    proposed: tuple[str, ...]
    """Whom kube-scheduler would send away."""

    def victims(self) -> tuple[str, ...]:
        """Return who has to go, most important first; nobody: preemption is not the answer here.

        kube-scheduler takes an answer without victims for an error. Where only pods that are leaving anyway
        have to be waited for, these are named: it deletes nothing twice, but keeps the node for the pod.
        """
        fleet = self.cluster.view_of(self.node, self.pod)
        rules, now = self.cluster.rules_for(self.ask), self.cluster.now()
        if any(self._priority_of(uid) >= self.pod.priority for uid in self.proposed):
            return ()
        for_memory = choose_victims(fleet, self.node, self.ask, rules, now=now, pods=self._evictable())
        if for_memory is None:
            return ()
        leaving = leaving_pods(fleet, self.node) | {
            uid for uid, each in self.there.items() if each.phase is PodPhase.RELEASING
        }
        chosen = set(for_memory) | self._needed_by_the_host(set(for_memory), leaving)
        if not chosen - leaving:
            chosen = {
                uid for uid in leaving if uid in self.there and self._priority_of(uid) < self.pod.priority
            }
        return tuple(sorted(chosen, key=self._importance))

    def _evictable(self) -> Iterable[Evictable]:
        """Everybody on the node who is less important, and those whom only kube-scheduler knows."""
        for uid in {*self.there, *self.proposed}:
            known = self.there.get(uid)
            if (known is None or known.phase in _THERE) and self._priority_of(uid) < self.pod.priority:
                yield Evictable(uid, self._priority_of(uid), preferred=uid in self.proposed)

    def _needed_by_the_host(self, chosen: Collection[str], leaving: Collection[str]) -> set[str]:
        """Return whom of the proposed ones the host's other resources need to go.

        Who holds no GPU was proposed for a reason that is not ours. Who holds one may stay if as many others
        with a GPU go instead, and CPU and memory of the host suffice without him.
        """
        with_gpu = [uid for uid in self.proposed if self._holds_gpu(uid)]
        needed = set(self.proposed) - set(with_gpu)
        for uid in sorted(with_gpu, key=self._importance, reverse=True):
            going = needed | set(chosen) | set(leaving)
            instead = sum(map(self._holds_gpu, going))
            if uid in going or (instead >= len(with_gpu) and self._host_has_room(going)):
                continue
            needed.add(uid)
        return needed

    def _host_has_room(self, going: Collection[str]) -> bool:
        node = self.cluster.fleet.node(self.node)
        if node is None:
            return False
        staying = [each.host for uid, each in self.there.items() if uid not in going]
        needs, room = [*staying, self.pod.host], node.host
        return (
            (room.cpu_milli is None or sum(each.cpu_milli for each in needs) <= room.cpu_milli)
            and (room.memory_bytes is None or sum(each.memory_bytes for each in needs) <= room.memory_bytes)
            and (room.pods is None or len(needs) <= room.pods)
        )

    def _holds_gpu(self, uid: str) -> bool:
        return bool(self.cluster.fleet.ledger.of_pod(uid))

    def _priority_of(self, uid: str) -> int:
        """A pod that only kube-scheduler knows is less important than ours by its own word."""
        known = self.there.get(uid)
        return self.pod.priority - 1 if known is None else known.priority

    def _importance(self, uid: str) -> tuple[int, float, str]:
        """Order as kube-scheduler has it: by priority, then who started first."""
        known = self.there.get(uid)
        started_at = known.started_at if known is not None else None
        return (-self._priority_of(uid), float("inf") if started_at is None else started_at, uid)
