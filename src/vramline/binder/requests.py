"""BindRequests: what was intended for which pod, how often it was tried, and how it ended."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from vramline.binder.store import BinderStore, Failed, StoredRequest, Taken
from vramline.model.decision import Placement
from vramline.model.pod import Pod
from vramline.wire.bind_request_v1alpha1 import BindPhase, BindRequest

__all__ = ["Requests"]

_TRIES = 3
_LONGEST_REASON = 1_024

Key = tuple[str, str]


class Requests:
    """The requests that are there, and the writing of new ones."""

    def __init__(self, store: BinderStore) -> None:
        self._store = store
        self._known: dict[Key, StoredRequest] = {}
        self._pending: dict[Key, BindRequest] = {}
        self._open: set[str] = set()
        """UIDs of pods whose attempt is stored as pending by this process."""
        self._ending: set[str] = set()
        """UIDs of pods whose attempt is about to be stored as failed."""
        self._log = structlog.get_logger()

    # ── what the API server tells ────────────────────────────────────────────────────────────────

    def take(self, stored: StoredRequest) -> None:
        """A request was created or changed."""
        key = (stored.request.namespace, stored.request.name)
        known = self._known.get(key)
        if known is None or known.version < stored.version:
            self._note(key, stored)

    def drop(self, namespace: str, name: str) -> None:
        """A request is gone."""
        self._known.pop((namespace, name), None)
        self._pending.pop((namespace, name), None)

    def of(self, pod: Pod) -> BindRequest | None:
        """Return the request of this pod, not that of an earlier one of its name."""
        known = self._known.get((pod.namespace, pod.name))
        return known.request if known is not None and known.request.pod_uid == pod.uid else None

    def is_pending(self, pod: Pod) -> bool:
        """Whether the pod's request has not ended."""
        request = self.of(pod)
        return request is not None and request.phase is BindPhase.PENDING

    def has_succeeded(self, pod: Pod) -> bool:
        """Whether it is recorded that the pod is bound."""
        request = self.of(pod)
        return request is not None and request.phase is BindPhase.SUCCEEDED

    def pending(self) -> list[BindRequest]:
        """Return every request that has not ended, and that is not being ended here, as far as is known."""
        return [each for each in self._pending.values() if each.pod_uid not in self._ending]

    @contextmanager
    def ending(self, pod: Pod) -> Iterator[None]:
        """Let nobody here take up the pod's request for the length of a `with` block."""
        self._ending.add(pod.uid)
        try:
            yield
        finally:
            self._ending.discard(pod.uid)

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    async def open(self, pod: Pod, placement: Placement) -> str:
        """Store the intent before anything has to be waited for; return what went wrong, if anything did."""
        if pod.uid in self._open and self.is_pending(pod):
            return ""
        self._open.discard(pod.uid)
        problem = await self._write(pod, placement, BindPhase.PENDING, "")
        if not problem:
            self._open.add(pod.uid)
        return problem

    async def close(self, pod: Pod, placement: Placement, refused: str) -> str:
        """Store how an attempt ended; one that was never opened counts as an attempt all the same."""
        phase = BindPhase.FAILED if refused else BindPhase.SUCCEEDED
        problem = await self._write(pod, placement, phase, refused)
        self._open.discard(pod.uid)
        if problem:
            self._log.warning("request.unwritten", pod=pod.key, phase=phase, problem=problem)
        return problem

    async def end(self, request: BindRequest, pod: Pod, refused: str) -> str:
        """Store how an attempt ended that another process, or an earlier start of this one, began."""
        given = pod.allocation.gpus if pod.allocation is not None and not refused else ()
        self._open.add(pod.uid)
        placement = Placement(node=request.node, gpus=tuple(given) or request.gpus)
        return await self.close(pod, placement, refused)

    async def count(self, pod: Pod, placement: Placement) -> int:
        """Store an attempt of another process as pending, unless it is; return its number, 0: not known."""
        stored = await self._store.read_request(pod.namespace, pod.name)
        if isinstance(stored, StoredRequest):
            self.take(stored)
        self._open.discard(pod.uid)
        if not self.is_pending(pod) and await self._write(pod, placement, BindPhase.PENDING, ""):
            return 0
        request = self.of(pod)
        return request.attempts if request is not None else 0

    async def end_attempt(self, pod: Pod, attempts: int, refused: str) -> None:
        """Store that exactly this attempt failed; if another one has begun meanwhile, that is no news."""
        request = self.of(pod)
        if request is not None and request.phase is BindPhase.PENDING and request.attempts == attempts:
            await self.end(request, pod, refused)

    async def _write(self, pod: Pod, placement: Placement, phase: BindPhase, reason: str) -> str:
        problem = "somebody else writes it all the time"
        for _ in range(_TRIES):
            if self.has_succeeded(pod):
                return ""  # a pod is bound once; what others tried besides is no news
            known = self._known.get((pod.namespace, pod.name))
            if known is not None and known.request.pod_uid != pod.uid:
                await self._store.drop_request(known)
                self.drop(pod.namespace, pod.name)
                known = None
            wanted = self._next(pod, placement, phase, reason[:_LONGEST_REASON])
            answer = await self._store.write_request(wanted, known.version if known else None)
            if isinstance(answer, StoredRequest):
                self.take(answer)
                return ""
            problem = answer.detail
            if not await self._read_again(pod, answer):
                break
            stored = self.of(pod)
            if stored == wanted:
                return ""  # the answer was lost, the write was not
        return f"BindRequest {pod.key}: {problem}"

    async def _read_again(self, pod: Pod, answer: Taken | Failed) -> bool:
        """Read what is stored; whether writing again makes sense."""
        stored = await self._store.read_request(pod.namespace, pod.name)
        if isinstance(stored, Failed):
            return False
        if stored is None:
            self.drop(pod.namespace, pod.name)
            return isinstance(answer, Taken)
        self._note((pod.namespace, pod.name), stored)
        return True

    def _note(self, key: Key, stored: StoredRequest) -> None:
        self._known[key] = stored
        self._pending.pop(key, None)
        if stored.request.phase is BindPhase.PENDING:
            self._pending[key] = stored.request

    def _next(self, pod: Pod, placement: Placement, phase: BindPhase, reason: str) -> BindRequest:
        before = self.of(pod)
        attempts = before.attempts if before is not None else 0
        begins = pod.uid not in self._open or before is None
        intended = placement if begins or before is None else before
        return BindRequest(
            namespace=pod.namespace,
            name=pod.name,
            pod_uid=pod.uid,
            node=intended.node,
            gpus=intended.gpus,
            phase=phase,
            reason=reason,
            attempts=attempts + 1 if begins else attempts,
            given=placement.gpus if phase is BindPhase.SUCCEEDED else (),
        )
