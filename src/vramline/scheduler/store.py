"""What the commit protocol needs of the API server, as values: a write happened, it did not, or nobody knows.

Exceptions are for mistakes; a conflict and a lost answer are ordinary answers here, because each of them
has its own right reaction.
"""

from typing import Protocol

import msgspec

from vramline.model.pod import Pod
from vramline.wire.kubernetes import PodObject
from vramline.wire.ledger_v1alpha1 import GpuLedger

__all__ = [
    "Binding",
    "Conflict",
    "Done",
    "EvictionStore",
    "HintStore",
    "LockStore",
    "NodeLock",
    "Refused",
    "Store",
    "Unclear",
    "Written",
]


class Written(msgspec.Struct, frozen=True):
    """The ledger is stored as given, under a new version."""

    ledger: GpuLedger


class Done(msgspec.Struct, frozen=True):
    """The binding is stored."""


class Conflict(msgspec.Struct, frozen=True):
    """Somebody else wrote first, or the object is not as the writer believed. Nothing was stored."""

    detail: str


class Refused(msgspec.Struct, frozen=True):
    """The API server will not have it, now or later. Nothing was stored."""

    detail: str


class Unclear(msgspec.Struct, frozen=True):
    """The answer was lost: stored or not, only reading tells."""

    detail: str


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's node and cards, written in one step under the condition that the pod is still the same."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    node: str
    annotations: dict[str, str]


class NodeLock(msgspec.Struct, frozen=True):
    """HAMi's lock on a node, and the version of the node that it was read at."""

    text: str
    """Empty: there is none."""
    version: str


class EvictionStore(Protocol):
    """The API server, as far as sending pods away is concerned."""

    async def nominate_pod(
        self, pod: Pod, version: str, node: str | None, why: str
    ) -> PodObject | Conflict | Unclear:
        """Nominate a pod that others are sent away for, or (None) end that, if it is still at `version`."""
        ...

    async def evict_pod(self, pod: Pod, *, dry_run: bool = False) -> Done | Conflict | Refused | Unclear:
        """Ask a pod to leave. Conflict: it is gone; Refused: a budget, or a right, does not allow it now.

        With `dry_run` nothing happens, and the answer is the same.
        """
        ...

    async def read_pod(self, namespace: str, name: str) -> PodObject | Unclear | None:
        """Read a pod past every cache; None: there is none."""
        ...


class HintStore(Protocol):
    """The API server, as far as hints to kube-scheduler are concerned."""

    async def hint_node(self, pod: Pod, version: str, node: str) -> PodObject | Conflict | Unclear:
        """Have kube-scheduler try a node first, if the pod is still at `version`."""
        ...


class LockStore(Protocol):
    """The API server, as far as HAMi's node locks are concerned."""

    async def read_lock(self, node: str) -> NodeLock | Unclear | None:
        """Read the lock of a node past every cache; None: there is no such node."""
        ...

    async def write_lock(
        self, node: str, version: str, text: str | None
    ) -> Done | Conflict | Refused | Unclear:
        """Set the lock of a node, or (None) take it away, if the node is still at `version`."""
        ...

    async def read_pod(self, namespace: str, name: str) -> PodObject | Unclear | None:
        """Read a pod past every cache; None: there is none."""
        ...


class Store(Protocol):
    """The API server, as far as promises are concerned."""

    async def write_ledger(self, ledger: GpuLedger) -> Written | Conflict | Refused | Unclear:
        """Create the ledger where `resource_version` is empty, else replace exactly that version."""
        ...

    async def read_ledger(self, node: str) -> GpuLedger | Unclear | None:
        """Read a ledger past every cache; None: there is none."""
        ...

    async def bind(self, binding: Binding) -> Done | Conflict | Refused | Unclear:
        """Bind a pod."""
        ...

    async def fence_pod(self, namespace: str, name: str, uid: str) -> PodObject | Unclear | None:
        """Give a pod a new version, so that a binding still on its way can never land, and return the pod.

        Where it comes back bound, the binding had landed before. None: the pod with this UID is gone.
        """
        ...

    async def read_pod(self, namespace: str, name: str) -> PodObject | Unclear | None:
        """Read a pod past every cache; None: there is none."""
        ...
