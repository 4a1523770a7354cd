"""The condition `vramline.io/Placed` of pods that wait: why, in one line, for whoever reads the pod itself.

What is written can be read off the pod, so a restart neither repeats nor forgets it. A pod gets it only when
it has waited a moment: most are bound before that, with no more writes than a promise and a binding. The same
reason is not written again, a pod at most once a minute, and all pods together a few times a second.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import msgspec

from vramline.explain.history import DecisionRecord, PodOutcome
from vramline.model.pod import Pod, PodPhase
from vramline.scheduler.live import LiveState
from vramline.scheduler.store import Conflict, Unclear

__all__ = ["ConditionStore", "PlacedCondition", "PlacedConditions"]

_AFTER_S = 2.0
_AGAIN_S = 60.0
_AT_ONCE = 5
"""Conditions that are written in one second."""
_MOST_WAITING = 10_000
_SEARCH_EVERY_S = 5.0
_PLACED = "Placed"


class PlacedCondition(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a pod has its cards, and why or where."""

    placed: bool
    reason: str
    message: str


class ConditionStore(Protocol):
    """The API server, as far as this condition is concerned."""

    async def tell_placed(self, pod: Pod, condition: PlacedCondition) -> Conflict | Unclear | None:
        """Write the condition, if the pod still has this UID; None: it is written."""
        ...


class PlacedConditions:
    """Writes conditions for one leader."""

    def __init__(
        self,
        live: LiveState,
        store: ConditionStore,
        leads: Callable[[], bool],
        *,
        clock: Callable[[], float],
    ) -> None:
        """`clock` measures durations."""
        self._live, self._store, self._leads, self._clock = live, store, leads, clock
        self._refused: OrderedDict[str, tuple[float, DecisionRecord]] = OrderedDict()
        """By pod, since when it waits and what was said last."""
        self._written_at: dict[str, float] = {}
        self._searched_at: float | None = None

    def hear(self, record: DecisionRecord) -> None:
        """A decision was made."""
        if record.outcome is not PodOutcome.PENDING or record.explanation.reason is None:
            self._refused.pop(record.pod_uid, None)
            return
        since, _ = self._refused.get(record.pod_uid, (self._clock(), record))
        self._refused[record.pod_uid] = since, record
        if len(self._refused) > _MOST_WAITING:
            self._refused.popitem(last=False)

    async def run(self) -> None:
        """Write what there is to say, once a second until cancelled."""
        while True:
            await asyncio.sleep(1.0)
            if self._leads():
                await self.tell()

    async def tell(self) -> None:
        """Write the next conditions, those of pods that wait first."""
        due = [*self._of_waiting(), *self._of_placed()]
        for pod, condition in due[:_AT_ONCE]:
            self._written_at[pod.uid] = self._clock()
            await self._store.tell_placed(pod, condition)
        self._written_at = {uid: at for uid, at in self._written_at.items() if uid in self._live.pods}

    def _of_waiting(self) -> list[tuple[Pod, PlacedCondition]]:
        now, due = self._clock(), []
        for uid, (since, record) in list(self._refused.items()):
            pod = self._live.pods.get(uid)
            if pod is None or pod.phase is not PodPhase.PENDING or pod.node is not None:
                del self._refused[uid]
                continue
            reason = str(record.explanation.reason)
            if pod.told == reason or now - since < _AFTER_S or not self._may_write(uid):
                continue
            message = record.explanation.message
            due.append((pod, PlacedCondition(placed=False, reason=reason, message=message)))
        return due

    def _of_placed(self) -> list[tuple[Pod, PlacedCondition]]:
        """Pods that were told to wait and are on a node now; all pods are searched, so not every time."""
        if self._searched_at is not None and self._clock() - self._searched_at < _SEARCH_EVERY_S:
            return []
        self._searched_at, due = self._clock(), []
        for pod in self._live.pods.values():
            if pod.told and pod.node is not None and pod.phase is not PodPhase.FINISHED:
                cards = ", ".join(claim.gpu for claim in self._live.fleet.ledger.of_pod(pod.uid))
                message = f"on {pod.node}: {cards}" if cards else f"on {pod.node}"
                if self._written_at.get(pod.uid) is None or self._may_write(pod.uid):
                    due.append((pod, PlacedCondition(placed=True, reason=_PLACED, message=message)))
        return due

    def _may_write(self, uid: str) -> bool:
        at = self._written_at.get(uid)
        return at is None or self._clock() - at >= _AGAIN_S
