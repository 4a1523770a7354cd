"""The last decisions, to be asked about later. A ring: the oldest is forgotten first."""

import enum
from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

import msgspec

from vramline.errors import InvariantError
from vramline.explain.decision import Explanation
from vramline.model.pod import GpuShare
from vramline.model.reason import Reason

__all__ = ["DecisionRecord", "History", "KeptRecord", "PodOutcome"]


class PodOutcome(enum.StrEnum):
    """What a decision meant for its pod."""

    BOUND = "Bound"
    PENDING = "Pending"
    REJECTED = "Rejected"


class DecisionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One decision about one pod, as it was explained when it was made."""

    id: int = 0
    """Grows by one with every record; 0: not in a history yet."""
    at: float
    """Seconds since the epoch."""
    pod: str
    pod_uid: str
    outcome: PodOutcome
    node: str | None = None
    gpus: tuple[GpuShare, ...] = ()
    nominated: str | None = None
    """The node that kube-scheduler was to try first, where the pod had been told one ahead."""
    explanation: Explanation


_MOST_CASES = 100
"""Records that hold on to the state of a whole cluster; those of one node weigh little."""


class KeptRecord(NamedTuple):
    """A record that somebody has kept, and how to read it."""

    id: int
    pod: str
    pod_uid: str
    read: Callable[[], DecisionRecord]


class _Entry:
    """A record, or how to write it down once somebody asks."""

    __slots__ = ("_record", "_write", "case", "id", "pod", "pod_uid")

    def __init__(self, number: int, pod: str, pod_uid: str, write: Callable[[], DecisionRecord]) -> None:
        self.id = number
        self.pod = pod
        self.pod_uid = pod_uid
        self._write = write
        self._record: DecisionRecord | None = None
        self.case: Callable[[], object] | None = None
        """How to take down what it was decided on; None: nobody can."""

    def read(self) -> DecisionRecord:
        if self._record is None:
            # What `write` holds on to is not needed any more.
            self._record, self._write = msgspec.structs.replace(self._write(), id=self.id), _written
        return self._record


def _written() -> DecisionRecord:
    raise InvariantError("a record is written down once")


class History:
    """Up to `capacity` records, and the latest one of each pod among them."""

    def __init__(self, capacity: int = 1_000) -> None:
        self._entries: deque[_Entry] = deque()
        self._capacity = capacity
        self._latest: dict[str, _Entry] = {}
        self._with_cases: deque[_Entry] = deque()
        self._last_id = 0
        self._made: Counter[tuple[PodOutcome, Reason | None]] = Counter()
        self._bound_later = 0
        self.on_added: Callable[[Callable[[], DecisionRecord]], None] | None = None
        """Called with how to read every record that is added."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def made(self) -> Counter[tuple[PodOutcome, Reason | None]]:
        """How many records of each outcome and reason were added."""
        return self._made + Counter({(PodOutcome.BOUND, None): self._bound_later})

    def add(self, record: DecisionRecord, case: Callable[[], object] | None = None) -> DecisionRecord:
        """Keep a record and return it with its number; `case` takes down what it was decided on."""
        self._made[record.outcome, record.explanation.reason] += 1
        entry = self._append(record.pod, record.pod_uid, lambda: record)
        if case is not None:
            entry.case = case
            self._with_cases.append(entry)
            if len(self._with_cases) > _MOST_CASES:
                self._with_cases.popleft().case = None
        return entry.read()

    def add_later(
        self,
        pod: str,
        pod_uid: str,
        write: Callable[[], DecisionRecord],
        case: Callable[[], object] | None = None,
    ) -> None:
        """Keep a record of a pod that was bound, which is only written down when somebody asks for it.

        Words cost more than deciding. `write` must say then what it would say now.
        """
        self._bound_later += 1
        self._append(pod, pod_uid, write).case = case

    def cases(self, most: int) -> list[tuple[object, DecisionRecord]]:
        """Return the newest decisions that can be made again, each with what it was made on, oldest first."""
        found = [entry for entry in islice(reversed(self._entries), most) if entry.case is not None]
        return [(entry.case(), entry.read()) for entry in reversed(found) if entry.case is not None]

    def recall(self, kept: Iterable[KeptRecord]) -> None:
        """Take in records of an earlier life, oldest first; further ones get higher numbers than theirs."""
        for each in kept:
            self.skip_to(each.id)
            self._take(_Entry(each.id, each.pod, each.pod_uid, each.read))

    def skip_to(self, number: int) -> None:
        """Give the next record a number above this one."""
        self._last_id = max(self._last_id, number)

    def latest(self, pod: str) -> DecisionRecord | None:
        """Return the newest record of a pod, by its UID or by namespace/name."""
        entry = self._latest.get(pod)
        return None if entry is None else entry.read()

    def get(self, number: int) -> DecisionRecord | None:
        """Return a record by its number; None: it was forgotten, or there is none yet."""
        place = number - self._entries[0].id if self._entries else -1
        return self._entries[place].read() if 0 <= place < len(self._entries) else None

    def all(self) -> list[DecisionRecord]:
        """Return every record that is still kept, newest first."""
        return self.newest(len(self._entries))

    def newest(self, most: int) -> list[DecisionRecord]:
        """Return up to `most` records, newest first."""
        return [entry.read() for entry in islice(reversed(self._entries), most)]

    def of_pod(self, pod: str) -> list[DecisionRecord]:
        """Return the records of a pod, by namespace/name, newest first."""
        return [entry.read() for entry in reversed(self._entries) if entry.pod == pod]

    def _append(self, pod: str, pod_uid: str, write: Callable[[], DecisionRecord]) -> _Entry:
        self._last_id += 1
        entry = _Entry(self._last_id, pod, pod_uid, write)
        self._take(entry)
        if self.on_added is not None:
            self.on_added(entry.read)
        return entry

    def _take(self, entry: _Entry) -> None:
        self._entries.append(entry)
        self._latest[entry.pod_uid] = self._latest[entry.pod] = entry
        if len(self._entries) > self._capacity:
            self._forget(self._entries.popleft())

    def _forget(self, entry: _Entry) -> None:
        for key in (entry.pod_uid, entry.pod):
            if self._latest.get(key) is entry:
                del self._latest[key]
