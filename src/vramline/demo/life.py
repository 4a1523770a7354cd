"""An embedded cluster that lives: pods come and go, memory lingers, strangers take some.

One `tick` brings everything up to the clock: arrivals, containers that start and end, processes nobody
manages, a look at every card, proofs of release, and the queue. No await anywhere: what was decided is
still true when it is recorded.
"""

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import msgspec

from vramline.demo.cards import CardProcess, SimulatedCard
from vramline.demo.checks import check_cards
from vramline.demo.queue import PodQueue
from vramline.demo.workloads import Workload, make_workload
from vramline.errors import InvariantError
from vramline.explain.history import DecisionRecord, History, PodOutcome
from vramline.explain.replay import Case
from vramline.model.ask import RealtimeMode
from vramline.model.node import Node
from vramline.model.pod import PodPhase
from vramline.settings import Settings, rules_from
from vramline.simulate.cluster import EmbeddedCluster
from vramline.simulate.outcome import Outcome, Status
from vramline.units import Mib, format_mib

__all__ = ["Happening", "LivingCluster"]

_CARD_SECONDS_PER_POD = 52.0
"""On n cards a pod arrives every 52/n seconds: about as many as they can take."""
_MOST_WAITING = 12
"""No pods arrive while so many wait."""
_MOST_AT_ONCE = 4
_FEW_CARDS = 64
_SYSTEM_MIB = Mib(2_400)
"""What a board's own operating system takes of the memory it shares with its GPU."""


class Happening(NamedTuple):
    """One thing that happened, for people to read."""

    at: float
    what: str
    who: str
    text: str


class _Plan(msgspec.Struct):
    """A pod's life still to come; a time of None is not known yet."""

    workload: Workload
    start_at: float | None = None
    delete_at: float | None = None
    end_at: float | None = None
    leaves_card_at: float | None = None
    told: set[str | None] = msgspec.field(default_factory=set)
    """Reasons for its waiting that were said already."""


class _Stranger(NamedTuple):
    """A process that belongs to no pod."""

    uuid: str
    pid: int
    until: float


class LivingCluster:
    """The demo's world. The same nodes, dice and clock give the same history."""

    def __init__(
        self,
        nodes: Iterable[Node],
        *,
        dice: random.Random,
        clock: Callable[[], float],
        history: History,
        settings: Settings | None = None,
    ) -> None:
        settings = settings or Settings()
        self.cluster = EmbeddedCluster(
            rules_from(settings),
            clock=clock,
            margin=settings.margin,
            release_grace_s=settings.release_grace_s,
        )
        self.cluster.takes_cases = True
        self.history = history
        self.cards: dict[str, SimulatedCard] = {}
        self.queue = PodQueue()
        self._dice = dice
        self._plans: dict[str, _Plan] = {}
        self._strangers: list[_Stranger] = []
        self._pods_made = 0
        self._last_pid = 4_000
        self._news: list[Happening] = []
        for node in nodes:
            self.cluster.set_node(node)
            for gpu in node.gpus:
                system = [CardProcess(1, _SYSTEM_MIB, None)] if gpu.unified else []
                self.cards[gpu.uuid] = SimulatedCard(gpu, system)
        # With few nodes every decision is kept with the arithmetic of all of them.
        self._most_nodes = None if len(self.cards) <= _FEW_CARDS else 20
        self._pace_s = _CARD_SECONDS_PER_POD / len(self.cards)
        self._next_arrival = self.cluster.now()
        self._next_stranger = self.cluster.now() + 8.0
        self._look()

    def tick(self) -> list[Happening]:
        """Bring the cluster up to its clock and return what happened. A broken invariant raises."""
        now = self.cluster.now()
        self._news = []
        self._arrive(now)
        self._give_up(now)
        self._start_containers(now)
        self._delete_pods(now)
        self._end_containers(now)
        self._leave_cards(now)
        self._move_strangers(now)
        self._look()
        self._settle(now)
        self._schedule(now)
        check_cards(self.cluster.fleet, self.cards.values())
        return self._news

    # ── pods ─────────────────────────────────────────────────────────────────────────────────────

    def _arrive(self, now: float) -> None:
        for _ in range(max(_MOST_AT_ONCE, len(self.cards) // 50)):
            if now < self._next_arrival or len(self.queue) >= max(_MOST_WAITING, len(self.cards) // 8):
                break
            self._pods_made += 1
            workload = make_workload(self._dice, self._pods_made, now=now)
            self._plans[workload.pod.uid] = _Plan(workload)
            self.cluster.add_pod(workload.pod)
            self.queue.add(workload.pod.uid, priority=workload.pod.priority)
            hurry = 0.2 if self._pods_made < 2 * len(self.cards) else 1.0  # the first screen is not empty
            self._next_arrival += self._dice.uniform(0.3, 1.7) * self._pace_s * hurry
        self._next_arrival = max(self._next_arrival, now)  # who could not come in time does not come later

    def _give_up(self, now: float) -> None:
        """Whoever waits too long is deleted by its owner."""
        for uid, plan in list(self._plans.items()):
            pod = self.cluster.pods.get(uid)
            if pod is None or pod.phase is not PodPhase.PENDING:
                continue
            if now - (pod.created_at or now) > 3 * plan.workload.stays_s:
                self.cluster.delete_pod(uid)
                self.queue.remove(uid)
                del self._plans[uid]
                self._tell(now, "gave up", pod.key, "its owner deleted it while it was pending")

    def _start_containers(self, now: float) -> None:
        for uid, plan in self._in_phase(PodPhase.BOUND):
            if plan.start_at is None:
                plan.start_at = now + self._dice.uniform(1.0, 3.0)
            if plan.start_at <= now:
                self._allocate(uid, plan.workload.uses_percent)
                self.cluster.start_pod(uid)
                plan.delete_at = now + plan.workload.stays_s

    def _allocate(self, uid: str, percent: int) -> None:
        for claim in self.cluster.fleet.ledger.of_pod(uid):
            card = self.cards[claim.gpu]
            # More than was promised is taken only where it harms nobody; reality would not ask.
            most = claim.mib + max(0, self.cluster.fleet.account(claim.gpu).free)
            wanted = claim.mib if card.gpu.unified else min(claim.mib * percent // 100, most)
            self._last_pid += 1
            card.start(CardProcess(self._last_pid, Mib(min(wanted, card.room)), uid))

    def _delete_pods(self, now: float) -> None:
        for uid, plan in self._in_phase(PodPhase.RUNNING):
            if plan.delete_at is not None and plan.delete_at <= now:
                self.cluster.delete_pod(uid)
                plan.end_at = now + plan.workload.lingers_s
                held = sum(claim.mib for claim in self.cluster.fleet.ledger.of_pod(uid))
                self._tell(
                    now,
                    "releasing",
                    plan.workload.pod.key,
                    f"{format_mib(held)} still held; its containers end in {plan.workload.lingers_s:.0f} s",
                )

    def _end_containers(self, now: float) -> None:
        """Containers end; the driver takes a moment longer to give the memory back."""
        for uid, plan in self._in_phase(PodPhase.RELEASING):
            if plan.end_at is not None and plan.end_at <= now:
                self.cluster.end_pod(uid)
                plan.leaves_card_at = now + self._dice.uniform(0.0, 3.0)

    def _leave_cards(self, now: float) -> None:
        for uid, plan in list(self._plans.items()):
            if plan.leaves_card_at is not None and plan.leaves_card_at <= now:
                for card in self.cards.values():
                    card.stop_pod(uid)
                del self._plans[uid]

    # ── strangers ────────────────────────────────────────────────────────────────────────────────

    def _move_strangers(self, now: float) -> None:
        for stranger in [stranger for stranger in self._strangers if stranger.until <= now]:
            self.cards[stranger.uuid].stop(stranger.pid)
            self._strangers.remove(stranger)
            self._tell(now, "unmanaged", self._name(stranger.uuid), f"process {stranger.pid} is gone")
            self.queue.wake()
        if now >= self._next_stranger:
            self._next_stranger = now + self._dice.uniform(15.0, 45.0)
            self._invite_stranger(now)

    def _invite_stranger(self, now: float) -> None:
        """A process that no pod owns takes part of what is free on some card."""
        uuid = self._dice.choice(list(self.cards))
        free = self.cluster.fleet.account(uuid).free
        most = min(free, self.cards[uuid].room, 24_000)
        if most < 1_000:
            return
        mib = Mib(self._dice.randrange(900, most, 50))
        self._last_pid += 1
        self.cards[uuid].start(CardProcess(self._last_pid, mib, None))
        self._strangers.append(_Stranger(uuid, self._last_pid, now + self._dice.uniform(15.0, 60.0)))
        self._tell(
            now,
            "unmanaged",
            self._name(uuid),
            f"process {self._last_pid} took {format_mib(mib)}, no pod owns it",
        )

    # ── the scheduler's side ─────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        now = self.cluster.now()
        for uuid, card in self.cards.items():
            self.cluster.observe(uuid, card.look(now))

    def _settle(self, now: float) -> None:
        released = self.cluster.settle()
        for item in released:
            self._tell(
                now,
                "released",
                item.claim.pod,
                f"{format_mib(item.claim.mib)} on {self._name(item.claim.gpu)}, proof: {item.proof}",
            )
        if released:
            self.queue.wake()

    def _schedule(self, now: float) -> None:
        while (uid := self.queue.next_ready(now)) is not None:
            pod = self.cluster.pods.get(uid)
            if pod is None or pod.phase is not PodPhase.PENDING:
                self.queue.remove(uid)  # somebody bound it through the extender
                continue
            outcome = self.cluster.place(uid, most_nodes=self._most_nodes)
            self._record(outcome)
            if outcome.status is Status.BOUND:
                self.queue.remove(uid)
                self._check_promise(outcome)
                self._tell_bound(now, outcome)
            else:
                self.queue.failed(uid, now)
                self._tell_pending(now, outcome)

    def _record(self, outcome: Outcome) -> None:
        if outcome.decision is not None and outcome.explanation is not None:
            self.history.add(
                DecisionRecord(
                    at=outcome.decision.at,
                    pod=outcome.pod.key,
                    pod_uid=outcome.pod.uid,
                    outcome=PodOutcome(outcome.status.value),
                    node=outcome.node,
                    gpus=outcome.gpus,
                    explanation=outcome.explanation,
                ),
                None if outcome.case is None else partial(_itself, outcome.case),
            )

    def _check_promise(self, outcome: Outcome) -> None:
        """Where strict mode has just promised memory, the card must have had it."""
        if outcome.decision is None or outcome.decision.mode is not RealtimeMode.STRICT:
            return
        for share in outcome.gpus:
            free = self.cluster.fleet.account(share.uuid).free
            if free < 0:
                raise InvariantError(f"{outcome.pod.key}: {share.uuid} is left with {free} MiB")

    def _tell_bound(self, now: float, outcome: Outcome) -> None:
        where = ", ".join(f"{self._name(share.uuid)} {format_mib(share.mib)}" for share in outcome.gpus)
        self._tell(now, "bound", outcome.pod.key, where)

    def _tell_pending(self, now: float, outcome: Outcome) -> None:
        """Say why a pod waits, but not the same thing twice."""
        plan = self._plans[outcome.pod.uid]
        if outcome.reason not in plan.told:
            plan.told.add(outcome.reason)
            self._tell(now, "pending", outcome.pod.key, outcome.message)

    # ── inside ───────────────────────────────────────────────────────────────────────────────────

    def _in_phase(self, phase: PodPhase) -> list[tuple[str, _Plan]]:
        found = []
        for uid, plan in self._plans.items():
            pod = self.cluster.pods.get(uid)
            if pod is not None and pod.phase is phase:
                found.append((uid, plan))
        return found

    def _name(self, uuid: str) -> str:
        return f"{self.cards[uuid].gpu.node}/{uuid}"

    def _tell(self, at: float, what: str, who: str, text: str) -> None:
        self._news.append(Happening(at, what, who, text))


def _itself(case: Case) -> Case:
    return case
