"""The last decisions, to be asked about later. A ring: the oldest is forgotten first."""

import enum
from collections import deque

import msgspec

from vramline.explain.decision import Explanation
from vramline.model.pod import GpuShare

__all__ = ["DecisionRecord", "History", "PodOutcome"]


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
    explanation: Explanation


class History:
    """Up to `capacity` records, and the latest one of each pod among them."""

    def __init__(self, capacity: int = 1_000) -> None:
        self._records: deque[DecisionRecord] = deque()
        self._capacity = capacity
        self._latest: dict[str, DecisionRecord] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: DecisionRecord) -> DecisionRecord:
        """Keep a record and return it with its number."""
        self._last_id += 1
        numbered = msgspec.structs.replace(record, id=self._last_id)
        self._records.append(numbered)
        self._latest[numbered.pod_uid] = self._latest[numbered.pod] = numbered
        if len(self._records) > self._capacity:
            self._forget(self._records.popleft())
        return numbered

    def latest(self, pod: str) -> DecisionRecord | None:
        """Return the newest record of a pod, by its UID or by namespace/name."""
        return self._latest.get(pod)

    def all(self) -> list[DecisionRecord]:
        """Return every record that is still kept, newest first."""
        return list(reversed(self._records))

    def _forget(self, record: DecisionRecord) -> None:
        for key in (record.pod_uid, record.pod):
            if self._latest.get(key) is record:
                del self._latest[key]
