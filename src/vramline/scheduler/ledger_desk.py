"""Where changes of one node's ledger are written: one at a time, everything that waits in one write.

Forty pods bound to one node at once do not fight over forty versions: while one write is under way the
others collect, and the next write carries them all. In a burst a write waits a moment for company, the longer
the more came together last, on whichever node: a write costs an API server about as much as a binding.
"""

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from vramline.model.claim import Claim
from vramline.scheduler.live import LiveState
from vramline.scheduler.store import Conflict, Refused, Store, Unclear, Written
from vramline.wire.ledger_v1alpha1 import GpuLedger

__all__ = ["LedgerDesk", "Lost"]

_LONGEST_WAIT_S = 0.2


class Lost(msgspec.Struct, frozen=True):
    """The change was not written; `retry`: the ledger was read again, so planning anew makes sense."""

    detail: str
    retry: bool


@dataclass(frozen=True, slots=True)
class _Change:
    add: tuple[Claim, ...]
    remove: frozenset[str]
    take_over: frozenset[str]


class LedgerDesk:
    """Writes the ledgers of all nodes for one leader."""

    def __init__(
        self, live: LiveState, store: Store, epoch: Callable[[], int | None], *, apart_s: float
    ) -> None:
        """`apart_s`: the least time between two writes of a ledger; a burst that pauses so long is over."""
        self._apart_s = apart_s
        self._live = live
        self._store = store
        self._epoch = epoch
        self._collecting: dict[str, list[_Change]] = {}
        self._writes: dict[str, asyncio.Task[list[Written | Lost]]] = {}
        self._written_at: dict[str, float] = {}
        """By node, when its last write began."""
        self._came_at = 0.0
        """When the last change came, for whichever node."""
        self._company = 1
        """How many changes went together lately."""

    async def write(
        self,
        node: str,
        *,
        add: Iterable[Claim] = (),
        remove: Iterable[str] = (),
        take_over: Iterable[str] = (),
    ) -> Written | Lost:
        """Change a node's ledger, and return when that is stored or lost.

        Claims are added; those of pods are removed, or taken over: their epoch becomes this leader's, so
        that whoever wrote them sees that they are no longer his.
        """
        if node not in self._collecting:
            self._collecting[node] = []
            before = self._writes.get(node)
            self._writes[node] = asyncio.create_task(self._write_after(node, before))
        self._came_at = asyncio.get_running_loop().time()
        changes, task = self._collecting[node], self._writes[node]
        changes.append(_Change(tuple(add), frozenset(remove), frozenset(take_over)))
        place = len(changes) - 1
        # Whoever stops waiting must not stop the write, which carries the changes of others too.
        return (await asyncio.shield(task))[place]

    async def _write_after(
        self, node: str, before: asyncio.Task[list[Written | Lost]] | None
    ) -> list[Written | Lost]:
        """Wait for the write before this one, then write all that was collected meanwhile."""
        if before is not None and not before.done():
            await asyncio.wait([before])
        await self._wait_for_company(self._written_at.get(node, -math.inf) + self._apart_s)
        changes = self._collecting.pop(node)
        self._written_at[node] = asyncio.get_running_loop().time()
        self._company = max(len(changes), self._company // 2)
        return await self._write_collected(node, changes)

    async def _wait_for_company(self, earliest: float) -> None:
        """Wait as long as changes keep coming and lately went together; who comes alone never waits."""
        now = asyncio.get_running_loop().time
        latest = now() + min(self._apart_s * (self._company - 1), _LONGEST_WAIT_S)
        # No event tells the end: it moves with every change that comes.
        while (rest_s := max(earliest, min(latest, self._came_at + self._apart_s)) - now()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(rest_s)

    async def _write_collected(self, node: str, changes: list[_Change]) -> list[Written | Lost]:
        """Write the changes that still hold, and without what is over.

        Memory that was let go may be promised anew at once. Both promises must never be stored together, so
        whatever is over goes with every write, should its own removal not have come through.
        """
        stored = self._live.ledger_of(node)
        over = _Change((), frozenset(self._live.overdue_on(node)), frozenset())
        changes = [*changes, over]
        removed = frozenset[str]().union(*(change.remove for change in changes))
        lost = {
            place: why
            for place, change in enumerate(changes)
            if (why := self._outdated(change, stored, removed))
        }
        accepted = [change for place, change in enumerate(changes) if place not in lost]
        outcome = await self._write_once(node, stored, accepted)
        return [Lost(lost[place], retry=True) if place in lost else outcome for place in range(len(changes))]

    def _outdated(self, change: _Change, stored: GpuLedger, removed: frozenset[str]) -> str:
        """Say why claims planned on an older ledger may not be added to this one; empty: they may.

        While a change waited, another leader may have written. Its claims are never written over, and
        never joined by claims that no longer fit beside them.
        """
        if not change.add:
            return ""
        pod = change.add[0]
        if any(claim.pod_uid == pod.pod_uid and claim.pod_uid not in removed for claim in stored.claims):
            return f"{pod.pod} holds a claim on {stored.node} already"
        # The claims are held already: their cards must not be over-promised by the books.
        if not self._live.fleet.columns.keep_promises(claim.gpu for claim in change.add):
            return f"another leader has taken what {pod.pod} was to get on {stored.node}"
        return ""

    async def _write_once(self, node: str, stored: GpuLedger, changes: list[_Change]) -> Written | Lost:
        epoch = self._epoch()
        if epoch is None:
            return Lost("this replica does not lead", retry=False)
        if stored.epoch > epoch:
            return Lost(f"leader {stored.epoch} wrote here; this is {epoch}", retry=False)
        ledger = _changed(stored, changes, epoch)
        if ledger.claims == stored.claims:
            return Written(stored)
        answer = await self._store.write_ledger(ledger)
        if isinstance(answer, Written):
            self._live.set_ledger(answer.ledger)
            if {claim.pod_uid for claim in stored.claims} - {claim.pod_uid for claim in ledger.claims}:
                self._live.sightings.freed.add(node)  # no object of kube-scheduler's tells that
            return answer
        if isinstance(answer, Refused):
            return Lost(answer.detail, retry=False)
        return await self._read_again(node, ledger, answer)

    async def _read_again(self, node: str, ledger: GpuLedger, answer: Conflict | Unclear) -> Written | Lost:
        """Somebody wrote first, or the answer was lost: what is stored decides."""
        stored = await self._store.read_ledger(node)
        if isinstance(stored, Unclear):
            return Lost(f"{answer.detail}; {stored.detail}", retry=False)
        if stored is None:
            self._live.drop_ledger(node)
            return Lost(answer.detail, retry=True)
        self._live.set_ledger(stored)
        if isinstance(answer, Unclear) and (stored.claims, stored.epoch) == (ledger.claims, ledger.epoch):
            return Written(stored)
        return Lost(answer.detail, retry=True)


def _changed(stored: GpuLedger, changes: list[_Change], epoch: int) -> GpuLedger:
    """Return the ledger with all changes made, removals first."""
    removed = frozenset[str]().union(*(change.remove for change in changes))
    taken = frozenset[str]().union(*(change.take_over for change in changes))
    kept = [
        msgspec.structs.replace(claim, epoch=epoch) if claim.pod_uid in taken else claim
        for claim in stored.claims
        if claim.pod_uid not in removed
    ]
    added = [msgspec.structs.replace(claim, epoch=epoch) for change in changes for claim in change.add]
    ordered = sorted([*kept, *added], key=lambda claim: (claim.gpu, claim.pod_uid))
    return msgspec.structs.replace(stored, epoch=epoch, claims=tuple(ordered))
