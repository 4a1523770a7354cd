"""Sends less important pods away for one that lacks nothing but VRAM.

kube-scheduler preempts by its own checks alone. Where these pass with all pods in place it finds nobody to
evict and drops the node without asking us: memory on a card is none of its resources. The nodes that it
hands to /filter are exactly those. So for a pod that was refused on all of them, the leader does the rest:

    refused ──quiet for a while──► plan ──dry run──► nominate ──► evict, one by one ──► wait for proof

- kube-scheduler's own turn comes first: it asks /preempt, if at all, right after the refusal. Once it was
  told victims, the pod is its own; once we have begun, it is told none.
- The nomination is written before anybody goes, under the version of the pod that the plan was made from: of
  two leaders one fails there, and what becomes free is kept for the pod from the first moment.
- Who is still needed is found out anew before each eviction, with those who leave already counted as gone.
  Evictions go through the API server's eviction call, which honours PodDisruptionBudgets.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog

from vramline.decide.engine import decide
from vramline.decide.preempt import Evictable, Plan, choose_plan, choose_victims, leaving_pods
from vramline.explain.eviction import tell_preemptor, tell_victim
from vramline.kube.events import Notice, Regarding, Severity, TokenBucket
from vramline.model.ask import Ask
from vramline.model.pod import Pod, PodPhase
from vramline.scheduler.live import LiveState
from vramline.scheduler.store import Conflict, Done, EvictionStore, Refused, Unclear
from vramline.wire.extender_v1 import ExtenderArgs, ExtenderFilterResult, version_of_asked_pod

__all__ = ["Preempter", "hear_filter"]

_LOOK_EVERY_S = 0.5
_QUIET_S = 2.0
"""How long after a refusal kube-scheduler may still come with its own victims."""
_REST_S = 30.0
"""How long a pod is left alone that a budget protects, or about which an answer was lost."""
_ENOUGH_PLANS = 30
"""So many nodes to choose from are enough; the least important pods are looked at first."""
_MOST_REFUSALS = 200
"""So many pods are remembered, those refused last; the others come again."""
_AT_ONCE = 10
"""How many pods are looked at before everybody else has a turn."""
_MORE = 2
"""How many more evictions than planned may turn out to be needed while they are under way."""

_THERE = (PodPhase.BOUND, PodPhase.RUNNING)


@dataclass(slots=True)
class _Refusal:
    nodes: tuple[str, ...]
    at: float
    is_due: bool = True
    """Whether nothing was done about it yet."""
    hint: str | None = None
    """The node that the pod had been told to try."""


def hear_filter(preempter: "Preempter", args: ExtenderArgs, result: ExtenderFilterResult) -> None:
    """Tell a preempter what came of looking at the nodes for a pod."""
    if result.error:
        return
    uid, _ = version_of_asked_pod(args.pod)
    if result.node_names or (result.nodes is not None and result.nodes.items):
        preempter.fits(uid)
    else:
        preempter.refused(uid, tuple(result.failed_nodes))


class Preempter:
    """One leader's preemption. Its methods but `run` and `step` never wait."""

    def __init__(
        self,
        live: LiveState,
        store: EvictionStore,
        leads: Callable[[], bool],
        tell: Callable[[Notice], None],
        *,
        clock: Callable[[], float],
    ) -> None:
        """`clock` measures durations: it must never jump."""
        self.evictions = 0
        """How many pods were sent away since the start."""
        self._live = live
        self._store = store
        self._leads = leads
        self._tell = tell
        self._clock = clock
        self._bucket = TokenBucket(per_s=2.0, burst=10)
        self._refused: dict[str, _Refusal] = {}
        self._answered: dict[str, _Refusal] = {}
        self._resting: dict[str, float] = {}
        self._busy_with = ""
        self._log = structlog.get_logger()

    # ── what the extender hears ──────────────────────────────────────────────────────────────────

    def refused(self, pod_uid: str, nodes: tuple[str, ...]) -> None:
        """No node fits a pod; on `nodes`, which kube-scheduler finds good, it would if cards were empty."""
        self._refused.pop(pod_uid, None)
        self._refused[pod_uid] = _Refusal(nodes, self._clock())
        if len(self._refused) > _MOST_REFUSALS:
            del self._refused[next(iter(self._refused))]

    def fits(self, pod_uid: str) -> None:
        """A node was found for a pod."""
        self._refused.pop(pod_uid, None)

    def may_answer(self, pod_uid: str) -> bool:
        """Whether kube-scheduler may be told victims for a pod: not while others leave for it already."""
        pod, last = self._live.pods.get(pod_uid), self._refused.get(pod_uid)
        if pod_uid == self._busy_with:
            return False
        return pod is None or last is None or not self._room_is_coming(pod, last.nodes)

    def answered(self, pod_uid: str, nodes: tuple[str, ...]) -> None:
        """kube-scheduler was told whom to evict on these nodes: it chooses, evicts and nominates."""
        if nodes:
            self._refused.pop(pod_uid, None)
            pod = self._live.pods.get(pod_uid)
            hint = None if pod is None else pod.nominated
            self._answered[pod_uid] = _Refusal(nodes, self._clock(), hint=hint)

    # ── what the leader does ─────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Preempt where it is needed, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            await self.step()

    async def step(self) -> None:
        """Do what is due now, the most important pods first."""
        now = self._clock()
        self._resting = {uid: until for uid, until in self._resting.items() if until > now}
        if not self._leads():
            self._refused.clear()
            self._answered.clear()
            return
        for uid, answered in list(self._answered.items()):
            await self._mark(uid, answered)
        due = [uid for uid, each in self._refused.items() if each.is_due and now - each.at >= _QUIET_S]
        for uid in sorted(due, key=self._turn)[:_AT_ONCE]:
            pod, refusal = self._live.pods.get(uid), self._refused.get(uid)
            if pod is None or pod.phase is not PodPhase.PENDING:
                self._refused.pop(uid, None)
            elif refusal is not None:
                refusal.is_due = False
                await self._take_turn(pod, refusal)

    def _turn(self, uid: str) -> tuple[int, float]:
        pod = self._live.pods.get(uid)
        return (0, 0.0) if pod is None else (-pod.priority, pod.created_at or 0.0)

    async def _take_turn(self, pod: Pod, refusal: _Refusal) -> None:
        if pod.ask is None or not pod.may_preempt or pod.uid in self._resting:
            return
        self._busy_with = pod.uid
        try:
            await self._preempt(pod, pod.ask, refusal)
        finally:
            self._busy_with = ""

    async def _preempt(self, pod: Pod, ask: Ask, refusal: _Refusal) -> None:
        """Find room for a pod, nominate it, and send away whom it needs to."""
        version = self._live.version_of(pod.uid)
        if self._room_is_coming(pod, refusal.nodes):
            return
        plan = await self._plan(pod, ask, refusal.nodes)
        if plan is None:
            await self._withdraw(pod.uid)
        elif not await self._nominate(pod, version, plan.node, tell_preemptor(plan.node, plan.victims)):
            refusal.is_due, refusal.at = True, self._clock()  # somebody changed the pod: plan anew
        elif not await self._evict_all(pod.uid, ask, plan) and plan.victims:
            await self._withdraw(pod.uid)

    # ── the plan ─────────────────────────────────────────────────────────────────────────────────

    async def _plan(self, pod: Pod, ask: Ask, nodes: tuple[str, ...]) -> Plan | None:
        """Return the least harmful plan that every budget allows; None: there is none, or none is needed."""
        while True:
            plan = await self._choose(pod, ask, nodes)
            if plan is None:
                return None
            protected = [victim for victim in plan.victims if not await self._may_go(victim)]
            if not protected:
                return plan
            self._rest(*(victim.uid for victim in protected))

    async def _choose(self, pod: Pod, ask: Ask, nodes: tuple[str, ...]) -> Plan | None:
        """Look at the nodes, letting others do something in between: each costs milliseconds."""
        plans: list[Plan] = []
        less_important = self._less_important(pod, nodes)
        for node in sorted(less_important, key=lambda name: _lowest(less_important[name])):
            await asyncio.sleep(0)
            victims = self._victims(pod, ask, node)
            if victims == ():  # nobody has to go: it fits, or those who leave make room
                waits = leaving_pods(self._live.fleet, node) & {each.uid for each in less_important[node]}
                return Plan(node, ()) if waits and not self._fits(pod, ask, node) else None
            if victims is not None:
                plans.append(Plan(node, victims))
            if len(plans) == _ENOUGH_PLANS:
                break
        return choose_plan(plans)

    def _less_important(self, pod: Pod, nodes: tuple[str, ...]) -> dict[str, list[Pod]]:
        """Return by node the pods with a lower priority; nodes without any are left out."""
        found: dict[str, list[Pod]] = {}
        for node in nodes:
            there = [each for each in self._live.pods_on(node) if each.priority < pod.priority]
            if there and self._live.fleet.node(node) is not None:
                found[node] = there
        return found

    def _victims(self, pod: Pod, ask: Ask, node: str) -> tuple[Pod, ...] | None:
        """Return who has to leave a node, least important first; None: nobody's going would help."""
        if self._live.fleet.node(node) is None:
            return None
        found = choose_victims(
            self._live.view_of(node, pod),
            node,
            ask,
            self._live.rules_for(ask),
            now=self._live.now(),
            pods=self._evictable(pod, node),
        )
        if found is None:
            return None
        return tuple(sorted((self._live.pods[uid] for uid in found), key=lambda each: each.priority))

    def _evictable(self, pod: Pod, node: str) -> Iterator[Evictable]:
        for each in self._less_important(pod, (node,)).get(node, ()):
            if each.phase in _THERE and each.uid not in self._resting:
                yield Evictable(each.uid, each.priority)

    def _fits(self, pod: Pod, ask: Ask, node: str) -> bool:
        view, rules = self._live.view_of(node, pod), self._live.rules_for(ask)
        return decide(view, ask, rules, now=self._live.now()).placement is not None

    def _room_is_coming(self, pod: Pod, nodes: tuple[str, ...]) -> bool:
        """Whether the node of a preemptor has room for it, or will once those are gone who leave it.

        Unless it is not among `nodes`: then something else than VRAM speaks against it by now.
        """
        node = pod.preempts_on
        return node in nodes and pod.ask is not None and self._victims(pod, pod.ask, node) == ()

    # ── its steps ────────────────────────────────────────────────────────────────────────────────

    async def _may_go(self, victim: Pod) -> bool:
        """Ask the API server whether a pod might be evicted; a pod that is gone is in nobody's way."""
        answer = await self._store.evict_pod(victim, dry_run=True)
        if isinstance(answer, Refused | Unclear):
            self._log.info("preemption.protected", pod=victim.key, problem=answer.detail)
        return isinstance(answer, Done | Conflict)

    async def _nominate(self, pod: Pod, version: str, node: str | None, why: str) -> bool:
        """Write a nomination, or its end; whether that is stored."""
        if not self._leads():
            return False
        stored = await self._store.nominate_pod(pod, version, node, why)
        if isinstance(stored, Conflict | Unclear):
            self._log.warning("preemption.not_nominated", pod=pod.key, node=node, problem=stored.detail)
            if isinstance(stored, Unclear):
                self._rest(pod.uid)
            return False
        self._live.set_pod(stored)
        self._log.info("preemption.nominated", pod=pod.key, node=node, why=why)
        if node is not None:
            self._tell(_notice(pod, "Preempting", why, Severity.NORMAL))
        return True

    async def _withdraw(self, uid: str) -> None:
        """Keep nothing for a pod for which there is nothing to wait any more."""
        pod = self._live.pods.get(uid)
        if pod is not None and pod.preempts_on is not None:
            why = f"there is no room on {pod.preempts_on} to wait for"
            await self._nominate(pod, self._live.version_of(uid), None, why)

    async def _evict_all(self, pod_uid: str, ask: Ask, plan: Plan) -> int:
        """Evict whoever is still needed, one after the other; return how many went."""
        gone = 0
        while gone < len(plan.victims) + _MORE:
            pod = self._live.pods.get(pod_uid)
            victims = None if pod is None else self._victims(pod, ask, plan.node)
            if pod is None or not victims or pod.preempts_on != plan.node:
                break
            await asyncio.sleep(self._bucket.reserve(self._clock()))
            if not self._leads() or not await self._evict(victims[0], pod, plan.node):
                break
            gone += 1
        return gone

    async def _evict(self, victim: Pod, pod: Pod, node: str) -> bool:
        """Send one pod away, and see that it leaves; whether it does."""
        answer = await self._store.evict_pod(victim)
        if isinstance(answer, Refused | Unclear):
            self._log.warning("preemption.not_evicted", pod=victim.key, node=node, problem=answer.detail)
            self._rest(*((victim.uid,) if isinstance(answer, Refused) else (victim.uid, pod.uid)))
            return False
        if isinstance(answer, Done):
            self.evictions += 1
            self._log.info("preemption.evicted", pod=victim.key, node=node, preemptor=pod.key)
            self._tell(_notice(victim, "Preempted", tell_victim(node, pod), Severity.WARNING))
        stored = await self._store.read_pod(victim.namespace, victim.name)
        if isinstance(stored, Unclear):
            self._rest(pod.uid)
            return False
        if stored is None or stored.metadata.uid != victim.uid:
            self._live.drop_pod(victim.uid)
        else:
            self._live.set_pod(stored)
        return True

    async def _mark(self, uid: str, answered: _Refusal) -> None:
        """Keep what kube-scheduler frees for a pod: its nomination alone would keep no VRAM."""
        pod = self._live.pods.get(uid)
        if pod is None or pod.phase is not PodPhase.PENDING or self._clock() - answered.at > _REST_S:
            self._answered.pop(uid, None)
        elif pod.nominated == answered.hint and self._clock() - answered.at < _QUIET_S:
            return  # it has not chosen yet, or just the node that was a mere hint before
        elif pod.nominated in answered.nodes:
            why, version = f"kube-scheduler makes room on {pod.nominated}", self._live.version_of(uid)
            is_marked = pod.preempts_on == pod.nominated
            if is_marked or await self._nominate(pod, version, pod.nominated, why):
                self._answered.pop(uid, None)

    def _rest(self, *uids: str) -> None:
        self._resting |= dict.fromkeys(uids, self._clock() + _REST_S)


def _lowest(pods: list[Pod]) -> tuple[int, str]:
    return min(pod.priority for pod in pods), pods[0].node or ""


def _notice(pod: Pod, reason: str, note: str, severity: Severity) -> Notice:
    return Notice(
        regarding=Regarding(kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid),
        reason=reason,
        action="Preempting",
        note=note,
        severity=severity,
    )
