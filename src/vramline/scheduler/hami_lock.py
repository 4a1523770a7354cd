"""HAMi's node lock, taken before a pod is bound where HAMi's device plugin hands out the devices.

The plugin believes the lock before anything else, so a pod need not wait until those before it have started,
and HAMi's scheduler binds nothing in between. The plugin takes the lock away when it has handed out the
devices. It is an option, because writing it needs the right to change nodes. It settles whose devices they
are, not who gets the memory: there HAMi promises before anybody can see it.
"""

from collections.abc import Callable

from vramline.model.pod import Pod
from vramline.scheduler.store import Done, LockStore, Unclear
from vramline.wire.hami import encode_lock, read_lock, read_lock_time
from vramline.wire.kubernetes import PodObject

__all__ = ["HamiLock"]

_EXPIRES_S = 300.0
"""From this age on HAMi takes no notice of a lock, unless it is told otherwise."""


class HamiLock:
    """Takes locks for pods that are about to be bound, and gives back those of pods that were not."""

    def __init__(self, store: LockStore, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._taken: dict[str, tuple[Pod, str]] = {}
        """By UID, pods for which a lock was or may have been written, and the node."""

    async def take(self, pod: Pod, node: str) -> str:
        """Lock a node for a pod, or say why not. A lock that nobody needs any more is replaced."""
        lock = await self._store.read_lock(node)
        if lock is None:
            return f"no node {node}"
        if isinstance(lock, Unclear):
            return f"HAMi's lock on {node} is not known: {lock.detail}"
        refusal = await self._why_kept(lock.text, pod, node)
        if refusal:
            return refusal
        self._taken[pod.uid] = pod, node
        text = encode_lock(pod.namespace, pod.name, at=self._clock())
        written = await self._store.write_lock(node, lock.version, text)
        return "" if isinstance(written, Done) else f"HAMi's lock on {node} was not taken: {written.detail}"

    async def settle(self, pod_uid: str, *, bound: bool) -> None:
        """Give back the lock of a pod that was not bound; that of a bound one is left to the plugin.

        Where nobody knows whether it is bound, the lock stays, until it is too old to count.
        """
        pod, node = self._taken.pop(pod_uid, (None, ""))
        if pod is None or bound:
            return
        stored = await self._store.read_pod(pod.namespace, pod.name)
        if isinstance(stored, Unclear) or _is_bound(stored, pod_uid):
            return
        lock = await self._store.read_lock(node)
        if lock is not None and not isinstance(lock, Unclear) and read_lock(lock.text) == pod.key:
            await self._store.write_lock(node, lock.version, None)

    async def _why_kept(self, text: str, pod: Pod, node: str) -> str:
        """Say for whom a lock stands; empty: for nobody, for this pod, or for one that needs it no more."""
        owner, at = read_lock(text), read_lock_time(text)
        if not text or owner == pod.key:
            return ""
        if at is None:
            return f"HAMi's lock on {node} cannot be read: {text!r}; remove it"
        if self._clock() - at > _EXPIRES_S:
            return ""
        if owner:
            namespace, _, name = owner.partition("/")
            if await self._store.read_pod(namespace, name) is None:
                return ""
        return f"HAMi's lock on {node} stands for {owner or 'a pod that it does not name'}"


def _is_bound(stored: PodObject | None, uid: str) -> bool:
    if stored is None or stored.metadata.uid != uid or stored.spec is None:
        return False
    return bool(stored.spec.node_name)
