"""Nominate ahead: tell kube-scheduler which node to try first, for pods that wait in its queue.

kube-scheduler looks at every node for every pod, because sampling would hide the one node that fits; but the
node in `status.nominatedNodeName` it tries first, alone. Where many pods wait and there are many nodes, that
costs a third write a pod and saves far more. A hint, never a promise: the claim is made at bind, and where
the node does not do, kube-scheduler looks at the others as it would have anyway.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable

import msgspec
import structlog

from vramline.model.ledger import Reservation
from vramline.model.pod import Pod
from vramline.scheduler.foresight import Foresight
from vramline.scheduler.head_start import HeadStart
from vramline.scheduler.live import LiveState
from vramline.scheduler.store import Conflict, HintStore, Unclear
from vramline.telemetry.tallies import Happening, Tallies
from vramline.wire.kubernetes import PodObject

__all__ = ["HintRules", "Nominator"]

_LOOK_EVERY_S = 0.25
_AT_LEAST_APART_S = 0.1
"""Looks that somebody waits for: at 5,000 nodes each costs tens of milliseconds."""
_MOST_A_LOOK = 400
"""Many more than kube-scheduler takes until the next look: else it would come to pods without a hint."""
_AT_ONCE = 16
"""Writes under way."""
_BREATH = 2
"""Pods that are planned before everybody else has a turn."""
_FRUITLESS_S = 5.0
"""How long pods that fitted nowhere are not planned again for their own sake."""
_REST_S = 5.0
"""How long nothing is written after the API server refused a hint, or did not answer."""
_LEFT_ALONE_S = 10.0
"""How long a pod that kube-scheduler has just tried is not touched."""


class HintRules(msgspec.Struct, frozen=True, kw_only=True):
    """Who gets hints, and from when on a third write a pod pays; docs/performance.md has the figures."""

    scheduler_name: str = "vramline"
    """Pods for other schedulers are none of our business."""
    nodes: int = 1_000
    """With fewer, kube-scheduler looks at all of them in less time than the write takes."""
    waiting: int = 20
    """With fewer in the queue, kube-scheduler is through before the hints are there."""
    head: int = 8
    """The next so many pods in the queue are left alone: kube-scheduler takes them before a hint arrives.

    That is at `nodes`; the more there are, the longer it takes for a pod without a hint.
    """

    def left_alone(self, nodes: int) -> int:
        """Return how many pods kube-scheduler takes before a hint arrives."""
        return max(1, -(-self.head * self.nodes // nodes))


class Nominator:
    """One leader's hints."""

    def __init__(
        self,
        live: LiveState,
        store: HintStore,
        leads: Callable[[], bool],
        rules: HintRules,
        *,
        clock: Callable[[], float],
        tallies: Tallies | None = None,
    ) -> None:
        """`clock` measures durations: it must never jump."""
        self._tallies = tallies or Tallies()
        self._live = live
        self._store = store
        self._leads = leads
        self._rules = rules
        self._clock = clock
        self._tried: dict[str, float] = {}
        self._planned: dict[str, Reservation] = {}
        """By pod, what stands behind a nomination of ours that is stored."""
        self._found: dict[str, Reservation] = {}
        """By pod, what it would take on the node that somebody else told it, an earlier leader maybe."""
        self._spent: set[str] = set()
        """Pods that kube-scheduler tried with a hint of ours and that wait still: the field is its own."""
        self._nowhere: set[str] = set()
        """Pods that fitted nowhere when they were last planned."""
        self._plan_all_at = 0.0
        """When those are planned again."""
        self._rests_until = -math.inf
        self._under_way: dict[str, asyncio.Event] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._head_start = HeadStart(lambda: live.nominees.arrivals, self._tallies, clock=clock)
        self._log = structlog.get_logger()

    def tried(self, pod_uid: str) -> None:
        """Hear that kube-scheduler tries a pod: a hint would come too late, and in the way of its bind."""
        self._tried[pod_uid] = self._clock()
        if pod_uid in self._planned:
            self._spent.add(pod_uid)
        self._head_start.tried(pod_uid)

    async def get_ahead(self, pod_uid: str) -> None:
        """Wait at a filter, for a moment, while pods that kube-scheduler takes next are told their nodes."""
        pod = self._live.pods.get(pod_uid)
        if pod is not None and self._leads() and not self._rests():
            lacks_a_hint = self._is_ours(pod) and _wants_a_hint(pod) and pod_uid not in self._nowhere
            await self._head_start.wait(told=not lacks_a_hint, owed=self._owes)

    async def settle(self, pod_uid: str) -> None:
        """Wait for a nomination of a pod that is being written: it gives the pod another version."""
        over = self._under_way.get(pod_uid)
        if over is not None:
            await over.wait()

    async def run(self) -> None:
        """Look every now and then, until cancelled."""
        while True:
            await asyncio.sleep(_AT_LEAST_APART_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._head_start.wanted.wait(), _LOOK_EVERY_S - _AT_LEAST_APART_S)
            await self.step()

    async def step(self) -> int:
        """Look once, and return how many pods were nominated."""
        self._forget()
        nodes = self._live.fleet.node_count
        if not self._leads() or nodes < self._rules.nodes or not self._live.pods_are_complete:
            return 0
        self._plan_all_again()
        if not self._owes():
            return 0
        # While kube-scheduler waits it takes nobody before a hint arrives.
        head = 0 if self._head_start.wanted.is_set() else self._rules.left_alone(nodes)
        queue = self._queue()
        waiting = [pod for pod in queue[head:] if self._is_owed(pod)]
        few = len(queue) < self._rules.waiting and not self._head_start.is_under_way()
        if few or not waiting:  # at 5,000 nodes a look costs 30 ms
            return 0
        before, foresight = self._written(), Foresight(self._live)
        for pod in queue[:head]:
            if pod.nominated is None:
                foresight.place(pod)  # it goes before the others, and takes its place without a hint
        wrong = [uid for uid, planned in self._planned.items() if not self._stands(foresight, uid, planned)]
        waiting = [*(self._live.pods[uid] for uid in wrong), *waiting]
        await self._count_others(foresight, queue)
        async with asyncio.TaskGroup() as writes:
            for place, pod in enumerate(waiting[:_MOST_A_LOOK], start=1):
                if place % _BREATH == 0:
                    await asyncio.sleep(0)
                planned = foresight.place(pod)
                if planned is None:
                    self._nowhere.add(pod.uid)
                else:
                    writes.create_task(self._nominate(pod, planned))
        written = self._written() - before
        if written:
            self._log.info("nominated.ahead", pods=written, waiting=len(waiting))
        return written

    def _plan_all_again(self) -> None:
        """Every now and then, give those another chance who fitted nowhere."""
        if self._clock() >= self._plan_all_at:
            self._nowhere.clear()
            self._plan_all_at = self._clock() + _FRUITLESS_S

    def _written(self) -> int:
        return self._tallies.of(Happening.NOMINATIONS, "written")

    def _forget(self) -> None:
        """Forget pods that no longer wait, nominations that are not ours any more, and old attempts."""
        now, waiting = self._clock(), self._live.nominees.waiting
        self._tried = {uid: at for uid, at in self._tried.items() if now - at < _LEFT_ALONE_S}
        self._spent &= waiting.keys()
        for known in (self._planned, self._found):
            for uid, planned in list(known.items()):
                if uid not in waiting or waiting[uid].nominated != planned.node:
                    del known[uid]
        for uid in self._spent - self._tried.keys():
            self._planned.pop(uid, None)
        self._head_start.keep(self._planned.keys())

    def _queue(self) -> list[Pod]:
        """Return the pods that kube-scheduler has still to try, about in the order in which it will."""
        waiting = [
            pod
            for uid, pod in self._live.nominees.waiting.items()
            if self._is_ours(pod) and self._is_still_to_come(uid)
        ]
        return sorted(waiting, key=lambda pod: -pod.priority)

    def _is_still_to_come(self, uid: str) -> bool:
        return (
            uid in self._live.nominees.waiting
            and uid not in self._tried
            and not self._live.is_held(uid)
            and not self._live.nodes_promised_to(uid)
        )

    def _owes(self) -> bool:
        """Whether pods are still to come that could be told a node and were not yet."""
        return not self._rests() and any(map(self._is_owed, self._live.nominees.waiting.values()))

    def _is_owed(self, pod: Pod) -> bool:
        return (
            pod.uid not in self._tried
            and pod.uid not in self._spent
            and pod.uid not in self._nowhere
            and self._is_ours(pod)
            and _wants_a_hint(pod)
        )

    def _is_ours(self, pod: Pod) -> bool:
        return pod.scheduler == self._rules.scheduler_name

    def _stands(self, foresight: Foresight, uid: str, planned: Reservation) -> bool:
        """Whether a nomination of ours still makes sense; one that was tried is kube-scheduler's business."""
        pod = self._live.pods[uid]
        stands = foresight.is_open(pod, planned.node) and foresight.keep(pod, planned)
        return stands or uid in self._spent or not self._is_still_to_come(uid)

    async def _count_others(self, foresight: Foresight, queue: list[Pod]) -> None:
        """Count what pods would take that have a node to try which we did not tell them."""
        others = [
            pod for pod in queue if pod.nominated and not pod.preempts_on and pod.uid not in self._planned
        ]
        for place, pod in enumerate(others, start=1):
            known, node = self._found.get(pod.uid), pod.nominated or ""
            if known is not None and foresight.keep(pod, known):
                continue
            if place % _BREATH == 0:
                await asyncio.sleep(0)
            planned = foresight.place_on(pod, node)
            if planned is not None:
                self._found[pod.uid] = planned

    async def _nominate(self, pod: Pod, planned: Reservation) -> None:
        """Write one nomination, unless the pod's turn came meanwhile."""
        async with self._slots:
            if self._rests() or not self._leads() or not self._may_be_told(pod.uid):
                return
            over = self._under_way[pod.uid] = asyncio.Event()
            try:
                version = self._live.version_of(pod.uid)
                stored = await self._store.hint_node(pod, version, planned.node)
                self._take_answer(pod, planned, stored)
            finally:
                del self._under_way[pod.uid]
                over.set()

    def _may_be_told(self, uid: str) -> bool:
        """Whether a pod, as it is now, has no node to try, or still the one that we told it."""
        if not self._is_still_to_come(uid):
            return False
        pod, told = self._live.pods[uid], self._planned.get(uid)
        renewed = told is not None and pod.nominated == told.node and pod.preempts_on is None
        return renewed or _wants_a_hint(pod)

    def _take_answer(self, pod: Pod, planned: Reservation, stored: PodObject | Conflict | Unclear) -> None:
        if isinstance(stored, Conflict | Unclear):
            self._tallies.count(Happening.NOMINATIONS, "not written")
            self._log.debug("nominated.not", pod=pod.key, node=planned.node, problem=stored.detail)
            if isinstance(stored, Unclear):
                self._rest(stored.detail)
            return
        self._tallies.count(Happening.NOMINATIONS, "written")
        self._planned[pod.uid] = planned
        self._live.set_pod(stored)
        self._head_start.told(pod.uid)

    def _rest(self, problem: str) -> None:
        """Write nothing for a while: an API server with too much to do must not get more of it from us."""
        if not self._rests():
            self._log.warning("nominated.resting", seconds=_REST_S, problem=problem)
        self._rests_until = self._clock() + _REST_S

    def _rests(self) -> bool:
        return self._clock() < self._rests_until


def _wants_a_hint(pod: Pod) -> bool:
    """Whether a pod has no node to try yet, and no wishes that only kube-scheduler can weigh."""
    return pod.is_plain and pod.nominated is None and pod.preempts_on is None and not pod.advances
