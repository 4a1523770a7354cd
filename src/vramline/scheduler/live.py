"""The scheduler's live state: a pure function of API objects and of the binds under way.

Four kinds of objects come in, in any order: nodes, their reports, their ledgers, pods. Whatever changes, the
claims of the nodes concerned are derived anew from the stored ledger, from what pods say and from what this
process is about to write. Nothing else is remembered but when a pod was first missed, a promise first seen.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from vramline.decide.adoption import adopt_bound_pod, adopt_pods
from vramline.decide.whatif import copy_without_pods
from vramline.model.ask import Ask
from vramline.model.claim import Claim, ClaimState
from vramline.model.fleet import DEFAULT_MARGIN, Fleet, Released
from vramline.model.ledger import Reservation
from vramline.model.node import NodePool, NodeProblem, ProblemKind
from vramline.model.pod import Pod, PodPhase
from vramline.model.rules import Rules, rules_for
from vramline.scheduler.advances import Advances
from vramline.scheduler.backlog import Backlog
from vramline.scheduler.clocks import PodMoments
from vramline.scheduler.crowd import Crowd
from vramline.scheduler.newcomers import find_newcomers
from vramline.scheduler.nominees import Nominees
from vramline.scheduler.own_doing import OwnDoing
from vramline.scheduler.placing import Placing
from vramline.scheduler.sightings import Sightings
from vramline.scheduler.stored_ledgers import StoredLedgers, is_older
from vramline.units import Mib
from vramline.wire import keys
from vramline.wire.kubernetes import NodeObject, PodObject
from vramline.wire.ledger_v1alpha1 import GpuLedger
from vramline.wire.nodes import same_inventory
from vramline.wire.pods import PodSighting, read_sighting
from vramline.wire.report_v1alpha1 import GpuReport

__all__ = ["LiveState"]


class LiveState:
    """Nodes, cards, pods and claims as the API server tells them. One task owns it."""

    def __init__(
        self,
        rules: Rules,
        *,
        clock: Callable[[], float],
        margin: Mib = DEFAULT_MARGIN,
        release_grace_s: float = 60.0,
        adopts_all: bool = False,
        pool: NodePool | None = None,
    ) -> None:
        self.rules = rules
        self.fleet = Fleet(margin)
        self.sightings = Sightings(
            self.fleet, clock, max_age_s=rules.max_age_s, stream_max_age_s=rules.stream_max_age_s
        )
        self.release_grace_s = release_grace_s
        self.pool = pool
        """Only these nodes exist for this state; None: all."""
        self.adopts_all = adopts_all
        """Whether annotations of other schedulers (HAMi, KAI), which tenants can write, are believed."""
        self.pods_are_complete = False
        """Until every pod was listed once, a claim whose pod is not known simply stays."""
        self._clock = clock
        self.backlog = Backlog()
        self._ledgers = StoredLedgers()
        self._pods: dict[str, Pod] = {}
        self._versions: dict[str, str] = {}
        self._unreadable: dict[str, tuple[str, str]] = {}
        self._on_node: dict[str, set[str]] = {}
        self._under_way: dict[str, Reservation] = {}
        self._missed_at: dict[str, float] = {}
        self._broken: dict[str, dict[str, str]] = {}
        self._doing = OwnDoing(
            self.fleet, self._ledgers, self._pods, self._under_way, self._claims_stored_for
        )
        self._crowd = Crowd(self.fleet)
        self._placing = Placing(self.fleet, self.sightings, self._crowd, pool)
        self.nominees = Nominees(rules)
        self._advances = Advances()
        self._moments = PodMoments()

    # ── what a scheduler asks ────────────────────────────────────────────────────────────────────

    @property
    def pods(self) -> Mapping[str, Pod]:
        """Every pod that could be read, by UID."""
        return self._pods

    def pods_on(self, node: str) -> list[Pod]:
        """The pods on a node that hold something there, or may."""
        there = (self._pods.get(uid) for uid in self._on_node.get(node, ()))
        return [pod for pod in there if pod is not None and pod.phase is not PodPhase.FINISHED]

    def now(self) -> float:
        """The time of this state."""
        return self._clock()

    def rules_for(self, ask: Ask | None) -> Rules:
        """How to decide about this ask."""
        return self.rules if ask is None else rules_for(self.rules, ask)

    def view_of(self, node: str, pod: Pod) -> Fleet:
        """One node as this pod may use it: what is kept there for others taken, what it reserved free."""
        view = self.nominees.view(self.fleet, node, pod, now=self.now())
        own = self.reserved_for(pod, node)
        return copy_without_pods(view, node, [own[0].pod_uid]) if own else view

    def reserved_for(self, pod: Pod, node: str) -> tuple[Claim, ...]:
        """The advance claims on a node that this pod would take over; empty: none, or not at this moment."""
        if not pod.advances:
            return ()
        own = self._advances.choose(pod, self.ledger_of(node).claims, now=self.now())
        return own if self.fleet.columns.keep_promises(c.gpu for c in own) else ()  # or leaders collided

    def reserved_on(self, pod: Pod) -> list[str]:
        """The nodes on which memory is reserved for this pod in advance."""
        named = {node for seal in pod.advances for node in self._ledgers.nodes_of(seal)}
        return sorted(node for node in named if self.reserved_for(pod, node))

    def version_of(self, pod_uid: str) -> str:
        """The resourceVersion of a pod as it was last seen."""
        return self._versions.get(pod_uid, "")

    def ledger_of(self, node: str) -> GpuLedger:
        """A node's stored ledger as it was last seen; an empty one without version where none is stored."""
        return self._ledgers[node]

    def newest_epoch(self) -> int:
        """The highest epoch that any ledger was written in; a new leader's must be higher."""
        return self._ledgers.newest_epoch()

    # ── what the API server tells ────────────────────────────────────────────────────────────────

    def set_node(self, node: NodeObject) -> None:
        """A node joined or changed."""
        self._placing.objects[node.name] = node
        self._read_node(node.name)

    def drop_node(self, name: str) -> None:
        """A node left. Its ledger is kept: its pods may come back with it."""
        self._placing.objects.pop(name, None)
        self.sightings.forget(name)
        self._placing.forget(name)

    def set_report(self, report: GpuReport) -> None:
        """An agent reported. What it saw on cards that are known already changes nothing but that."""
        report, known = self.sightings.date(report), self._placing.reports.get(report.node)
        self._placing.reports[report.node] = report
        if known is not None and same_inventory(known, report):
            self.sightings.take_report(report)
        elif report.node in self._placing.objects:
            self._read_node(report.node)

    def drop_report(self, name: str) -> None:
        """A report was deleted."""
        self._placing.reports.pop(name, None)
        self.sightings.forget(name)
        if name in self._placing.objects:
            self._read_node(name)

    def set_ledger(self, ledger: GpuLedger) -> None:
        """A ledger was written, by us or by another leader. A watch that lags behind changes nothing."""
        known = self.ledger_of(ledger.node)
        if self._ledgers.replace(ledger, now=self.now()) and not self._doing.adds_what_is_held(known, ledger):
            self._rebuild(ledger.node)

    def drop_ledger(self, name: str) -> None:
        """A ledger was deleted; live pods keep what their annotations say."""
        self._ledgers.drop(name, now=self.now())
        self._rebuild(name)

    def set_pod(self, document: PodObject) -> None:
        """A pod was read or written by ourselves."""
        self.see_pod(read_sighting(document))

    def see_pod(self, seen: PodSighting) -> None:
        """A pod was created or changed. One of ours that cannot be read freezes its node, and only that."""
        uid = seen.uid
        if is_older(seen.version, self._versions.get(uid, "")):
            return  # a watch that lags behind what was read directly
        before, was = self._node_of(uid), self._pods.get(uid)
        self._versions[uid] = seen.version
        if seen.pod is not None:
            self._pods[uid] = self._moments.date(seen.pod, now=self.now())
            self._unreadable.pop(uid, None)
        else:
            self._pods.pop(uid, None)
            # Only a pod that we promised something may freeze its node: nonsense in another scheduler's pod
            # must not take a node away from everybody.
            ours = seen.is_sealed or bool(self._ledgers.nodes_of(uid))
            self._unreadable[uid] = (seen.node if ours else "", seen.problem)
        self._missed_at.pop(uid, None)
        self._move(uid, before, after := self._node_of(uid))
        pod = self._pods.get(uid)
        self._note(uid, pod)
        if was is not None and pod is not None and self._doing.is_bound_as_promised(was, pod):
            adopt_bound_pod(self.fleet, pod, self.rules, self._claims_stored_for(uid, after))
            return
        for name in {before, after, *self._ledgers.nodes_of(uid)} - {""}:
            self._rebuild(name)

    def see_pods(self, seen: Sequence[PodSighting]) -> None:
        """Many pods were created or changed. While all are listed, those that are new are noted together."""
        new, versions, others = find_newcomers(seen if self.backlog.is_open else (), self._knows)
        self._moments.date_new(new, now=self.now())
        self._versions.update(versions)
        self._pods.update(new)
        for uid, pod in new.items():
            self._missed_at.pop(uid, None)
            if pod.node is None or pod.advances:
                self.nominees.note(uid, pod)
                self._advances.note(uid, pod)
            if pod.node is not None:
                self._on_node.setdefault(pod.node, set()).add(uid)
        self._crowd.meet(new)
        self.backlog.take_all(self._ledgers.doubt_all(new))
        self.backlog.take_all(pod.node for pod in new.values() if pod.node is not None)
        for each in others if self.backlog.is_open else seen:
            self.see_pod(each)

    def drop_pod(self, uid: str) -> None:
        """A pod's object is gone; what it held is held until the card shows it free."""
        before = self._node_of(uid)
        for known in (self._pods, self._versions, self._unreadable):
            known.pop(uid, None)
        self._moments.forget(uid)
        self._missed_at[uid] = self.now()
        self._move(uid, before, "")
        self._note(uid, None)
        for name in {before, *self._ledgers.nodes_of(uid)} - {""}:
            self._rebuild(name)

    def start_listing(self) -> None:
        """Everything is about to be told: what it means is worked out when all of it is there."""
        self._crowd.gather()
        self.backlog.start()

    def finish_listing(self) -> None:
        """All four kinds were listed, and `backlog` knows about which nodes."""
        self._crowd.count()
        settle = self._rebuild if self.fleet.ledger.version else self._settle
        self.backlog.finish(self.fleet, self._placing.place_all, settle)

    def read_ahead(self) -> Iterator[None]:
        """Read nodes before all is listed, some at every step. Who is on them counts from the end on."""
        return self.backlog.read_ahead(self.fleet, self._placing.place_all)

    def finish_listing_pods(self) -> None:
        """Every pod is known now: claims of pods that are not there are on their way out."""
        self.pods_are_complete = True
        for name in self._ledgers:
            self._rebuild(name)

    def set_problem(self, node: str, source: str, problem: str | None) -> None:
        """An object of a node cannot be read (None: it can again); the node is frozen meanwhile."""
        problems = self._broken.setdefault(node, {})
        if problems.get(source) == problem:
            return
        if problem is None:
            problems.pop(source, None)
            self.sightings.freed.add(node)
        else:
            problems[source] = problem
        self._rebuild(node)

    def set_pod_unreadable(self, uid: str, problem: str) -> None:
        """A pod cannot be read any more: the node it was last seen on is frozen."""
        node = self._node_of(uid)
        self._pods.pop(uid, None)
        self.nominees.note(uid, None)
        self._advances.note(uid, None)
        self._unreadable[uid] = (node, problem)
        for name in {node, *self._ledgers.nodes_of(uid)} - {""}:
            self._rebuild(name)

    # ── binds under way ──────────────────────────────────────────────────────────────────────────

    def hold(self, reservation: Reservation) -> None:
        """Promise cards to a pod before the promise is written; raises where that would over-promise.

        What was reserved for the pod in advance is taken over; `taken_over_by` says what must go from the
        ledger in the write that stores the pod's own claims.
        """
        uid = reservation.claims[0].pod_uid
        pod = self._pods.get(uid)
        taken = () if pod is None else self.reserved_for(pod, reservation.node)
        if taken:
            self.fleet.remove_claims(taken[0].pod_uid)
            reservation = self._advances.take(taken, reservation)
        self.fleet.reserve(reservation)
        self.fleet.adopt(claim for claim in taken if not self._advances.is_covered(claim))
        self._under_way[uid] = reservation
        self._crowd.count_requests(reservation.node)

    def taken_over_by(self, pod_uid: str) -> list[str]:
        """The advance claims that a bind under way takes over."""
        return self._advances.taken_by(pod_uid)

    def end_hold(self, pod_uid: str) -> None:
        """The bind is over, well or badly; from now on only what is stored counts."""
        reservation = self._under_way.pop(pod_uid, None)
        self._advances.end(pod_uid)
        if reservation is not None and not self._doing.is_stored(reservation):
            self._rebuild(reservation.node)

    def nodes_promised_to(self, pod_uid: str) -> list[str]:
        """The nodes whose stored ledgers name a pod."""
        return sorted(self._ledgers.nodes_of(pod_uid))

    def is_held(self, pod_uid: str) -> bool:
        """Whether a bind of this pod is under way."""
        return pod_uid in self._under_way

    # ── what is over ─────────────────────────────────────────────────────────────────────────────

    def settle(self) -> list[Released]:
        """Let go of memory that is proved free; what was let go must be removed from the ledgers."""
        released = self.fleet.settle(
            now=self.now(), grace_s=self.release_grace_s, max_age_s=self.rules.max_age_s
        )
        for each in released:
            card = self.fleet.gpu(each.claim.gpu)
            if card is not None:
                self.sightings.freed.add(card.node)
            self._ledgers.let_go(each.claim.pod_uid)
        return released

    def overdue(self) -> dict[str, set[str]]:
        """By node, the pods whose stored claims are over."""
        return self._ledgers.overdue(self.overdue_on)

    def overdue_on(self, node: str) -> set[str]:
        """The pods whose claims a node's ledger still has but that are over: free, or gone elsewhere."""
        claims = self.ledger_of(node).claims
        stored = {claim.pod_uid for claim in claims}
        elsewhere = {uid for uid in stored if self._node_of(uid) not in {"", node}}
        ended = self._advances.over(claims, now=self.now())
        return elsewhere | ended | (self._ledgers.are_let_go(node) & stored)

    def promises_not_kept(self) -> list[Pod]:
        """Pods whose promise has been waiting for its binding longer than the grace period.

        A watch may lag: whoever takes such a promise back asks the API server for the pod.
        """
        promised = self._ledgers.promised_before(self.now() - self.release_grace_s)
        pods = [self._pods[uid] for uid in promised if uid in self._pods]
        for pod in pods:
            if pod.node is not None:
                self._ledgers.keep_promise(pod.uid)
        return [pod for pod in pods if pod.node is None and pod.uid not in self._under_way]

    # ── inside ───────────────────────────────────────────────────────────────────────────────────

    def _read_node(self, name: str) -> None:
        if not self.backlog.takes(name, changed=True):
            self._placing.place(name)
            self._rebuild(name)

    def _rebuild(self, name: str) -> None:
        """Derive a node's claims anew."""
        if not self.backlog.takes(name, changed=False):
            self.fleet.clear_claims_of_node(name)
            self._settle(name)

    def _settle(self, name: str) -> None:
        """Derive the claims of a node on which none are counted."""
        node = self.fleet.node(name)
        if node is None:
            return
        if node.problem is not None and node.problem.kind is ProblemKind.FROZEN:
            self.fleet.set_node(msgspec.structs.replace(node, problem=None))
        stored = self._stored_claims(name)
        uids, pods = self._on_node.get(name, set()), self._pods
        there = [pod for pod in map(pods.get, uids) if pod is not None and self._counts(pod, stored)]
        here = [pod if pod.phase is not PodPhase.FINISHED else self._as_holder(pod) for pod in there]
        elsewhere = {uid: claims for uid, claims in stored.items() if uid not in uids}
        reserving = [pod for pod in map(pods.get, elsewhere) if pod is not None and pod.node is None]
        adopt_pods(self.fleet, [*here, *reserving], self.rules, stored)
        self.fleet.adopt(self._claims_of_the_missing(elsewhere))
        for reservation in self._under_way.values():
            if reservation.node == name and not self._holds(reservation.claims[0]):
                self.fleet.adopt(reservation.claims)
        self._crowd.count_requests(name)
        for problem in self._broken.get(name, {}).values():
            self.fleet.freeze(name, NodeProblem(ProblemKind.FROZEN, problem))
        for uid in uids if self._unreadable else ():
            if uid in self._unreadable:
                self.fleet.freeze(name, NodeProblem(ProblemKind.FROZEN, self._unreadable[uid][1]))

    def _counts(self, pod: Pod, stored: Mapping[str, tuple[Claim, ...]]) -> bool:
        """Whether a pod on a node may be believed to hold memory there."""
        return (
            pod.uid in stored
            or self.adopts_all
            or pod.holds_devices
            or pod.reserves_group is not None
            or (pod.allocation is not None and pod.allocation.origin == keys.ALLOCATION)
        )

    def _holds(self, claim: Claim) -> bool:
        return any(held.gpu == claim.gpu for held in self.fleet.ledger.of_pod(claim.pod_uid))

    def _stored_claims(self, name: str) -> dict[str, tuple[Claim, ...]]:
        """A node's stored claims by pod, without those that were let go or whose pod went elsewhere."""
        by_pod: dict[str, tuple[Claim, ...]] = {}
        claims, let_go = self.ledger_of(name).claims, self._ledgers.are_let_go(name)
        for claim in claims:
            if self._is_good(claim, name, let_go):
                uid = claim.pod_uid
                by_pod[uid] = (*by_pod[uid], claim) if uid in by_pod else (claim,)
        return by_pod

    def _claims_stored_for(self, uid: str, name: str) -> tuple[Claim, ...]:
        """What `_stored_claims` says of one pod."""
        own, let_go = self.ledger_of(name).claims, self._ledgers.are_let_go(name)
        return tuple([each for each in own if each.pod_uid == uid and self._is_good(each, name, let_go)])

    def _is_good(self, claim: Claim, name: str, let_go: set[str]) -> bool:
        uid = claim.pod_uid
        if uid in let_go or (claim.until is not None and self._advances.is_covered(claim)):
            return False
        pod = self._pods.get(uid)
        return pod is None or pod.node is None or pod.node == name

    def _claims_of_the_missing(self, stored: Mapping[str, tuple[Claim, ...]]) -> Iterable[Claim]:
        """Claims of pods that are not there: releasing since they were missed, once all pods are known."""
        for uid, claims in stored.items():
            if uid in self._pods or uid in self._unreadable:
                continue
            if not self.pods_are_complete or uid in self._under_way or claims[0].until is not None:
                yield from claims
                continue
            missed_at = self._missed_at.setdefault(uid, self.now())
            since = {"started_at": missed_at, "ended_at": missed_at}
            yield from (msgspec.structs.replace(each, state=ClaimState.RELEASING, **since) for each in claims)

    def _as_holder(self, pod: Pod) -> Pod:
        """A pod that finished holds its memory until the card shows otherwise, if it was promised any."""
        if not any(claim.pod_uid == pod.uid for claim in self.ledger_of(pod.node or "").claims):
            return pod
        ended_at = pod.ended_at
        if ended_at is None:
            ended_at = self._missed_at.setdefault(pod.uid, self.now())
        return msgspec.structs.replace(pod, phase=PodPhase.RELEASING, ended_at=ended_at)

    def _knows(self, uid: str) -> bool:
        return uid in self._versions or uid in self._unreadable

    def _node_of(self, uid: str) -> str:
        pod = self._pods.get(uid)
        return self._unreadable.get(uid, ("", ""))[0] if pod is None else pod.node or ""

    def _note(self, uid: str, pod: Pod | None) -> None:
        for each in (self.nominees, self._crowd, self._advances):
            each.note(uid, pod)

    def _move(self, uid: str, before: str, after: str) -> None:
        if before != after:
            self._on_node.get(before, set()).discard(uid)
            self._ledgers.doubt(uid)
        if after:
            self._on_node.setdefault(after, set()).add(uid)
