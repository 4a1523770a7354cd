"""A queue in the manner of kube-scheduler: priority first, then age; who fails waits.

    ready ──pop──▶ (tried) ──failed──▶ waiting ──woken, or waited long──▶ backing off ──time──▶ ready

A pod that failed is not tried again before something changed for it (memory was freed) and its back-off
is over; without any change it is tried again after `FLUSH_AFTER_S` all the same.
"""

import msgspec

__all__ = ["FLUSH_AFTER_S", "PodQueue"]

FLUSH_AFTER_S = 60.0
_FIRST_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 10.0


class _Entry(msgspec.Struct):
    pod_uid: str
    priority: int
    turn: int
    attempts: int = 0
    ready_at: float = 0.0
    """When its back-off is over."""
    flush_at: float | None = None
    """Set while it waits to be woken: when it stops waiting for that."""


class PodQueue:
    """Pods that wait for a place."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._turns = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, pod_uid: object) -> bool:
        return pod_uid in self._entries

    def add(self, pod_uid: str, *, priority: int) -> None:
        """A pod arrived."""
        self._turns += 1
        self._entries[pod_uid] = _Entry(pod_uid, priority, self._turns)

    def remove(self, pod_uid: str) -> None:
        """A pod was bound or deleted; one that is not here changes nothing."""
        self._entries.pop(pod_uid, None)

    def next_ready(self, now: float) -> str | None:
        """Return the pod whose turn it is; it stays in the queue until it is removed or `failed`."""
        ready = [
            entry
            for entry in self._entries.values()
            if entry.ready_at <= now and (entry.flush_at is None or entry.flush_at <= now)
        ]
        return min(ready, key=lambda entry: (-entry.priority, entry.turn)).pod_uid if ready else None

    def failed(self, pod_uid: str, now: float) -> None:
        """A pod was tried and did not fit; it goes behind those of its priority."""
        entry = self._entries[pod_uid]
        self._turns += 1
        entry.turn = self._turns
        entry.attempts += 1
        entry.ready_at = now + min(_FIRST_BACKOFF_S * 2 ** (entry.attempts - 1), _LONGEST_BACKOFF_S)
        entry.flush_at = now + FLUSH_AFTER_S

    def wake(self) -> None:
        """Something changed for the better: whoever waits may be tried once the back-off is over."""
        for entry in self._entries.values():
            entry.flush_at = None
