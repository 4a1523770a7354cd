"""The commit protocol's store on a real API server: every failure becomes one of the four answers."""

import datetime as dt
from collections.abc import Awaitable
from typing import TypeVar

from vramline.kube.client import Binding as KubeBinding
from vramline.kube.client import KubeClient, Patch
from vramline.kube.events import shorten
from vramline.kube.failures import (
    AmbiguousError,
    ApiError,
    ConflictError,
    DeniedError,
    InvalidError,
    NotFoundError,
    ThrottledError,
)
from vramline.kube.objects import LEDGERS, NODES, PODS, ObjectKey, Stored
from vramline.model.pod import Pod
from vramline.scheduler.conditions import PlacedCondition
from vramline.scheduler.store import Binding, Conflict, Done, NodeLock, Refused, Unclear, Written
from vramline.wire.keys import CONDITION_PLACED, CONDITION_PREEMPTOR, HAMI_LOCK
from vramline.wire.kubernetes import PodObject
from vramline.wire.ledger_v1alpha1 import GpuLedger

__all__ = ["KubeStore"]

T = TypeVar("T")


class KubeStore:
    """Ledgers and pods at the API server. Satisfies `store.Store`."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def write_ledger(self, ledger: GpuLedger) -> Written | Conflict | Refused | Unclear:
        """Create the ledger where it has no version, else replace exactly that version."""
        if ledger.resource_version:
            outcome = await _outcome_of(self._client.update(LEDGERS, ObjectKey(ledger.node), ledger))
        else:
            outcome = await _outcome_of(self._client.create(LEDGERS, ledger))
        return Written(outcome.value) if isinstance(outcome, Stored) else outcome

    async def read_ledger(self, node: str) -> GpuLedger | Unclear | None:
        """Read a ledger from the API server itself."""
        try:
            return (await self._client.get(LEDGERS, ObjectKey(node))).value
        except NotFoundError:
            return None
        except ApiError as error:
            return Unclear(str(error))

    async def bind(self, binding: Binding) -> Done | Conflict | Refused | Unclear:
        """Bind a pod under the conditions of its UID and version."""
        wanted = KubeBinding(
            pod=ObjectKey(binding.name, binding.namespace),
            uid=binding.uid,
            node=binding.node,
            version=int(binding.resource_version) if binding.resource_version else None,
            annotations=binding.annotations,
        )
        return await _outcome_of(self._client.bind(wanted)) or Done()

    async def fence_pod(self, namespace: str, name: str, uid: str) -> PodObject | Unclear | None:
        """Write a condition that says the pod waits: the new version is what counts."""
        now = dt.datetime.now(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        condition = {
            "type": CONDITION_PLACED,
            "status": "False",
            "reason": "PromiseTakenBack",
            "message": f"a promise was taken back at {now}",
            "lastTransitionTime": now[:19] + "Z",
        }
        # Under a strategic merge the UID is a precondition: a pod created anew under the name is not touched.
        patch = Patch(
            {"metadata": {"uid": uid}, "status": {"conditions": [condition]}},
            "application/strategic-merge-patch+json",
        )
        try:
            stored = await self._client.patch(PODS, ObjectKey(name, namespace), patch, subresource="status")
        except NotFoundError:
            return None
        except ConflictError as error:
            return await self._fenced_by_its_end(namespace, name, uid, str(error))
        except ApiError as error:
            return Unclear(str(error))
        return stored.value

    async def tell_placed(self, pod: Pod, condition: PlacedCondition) -> Conflict | Unclear | None:
        """Write whether a pod has its cards; under a strategic merge the UID is a precondition."""
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        told = {
            "type": CONDITION_PLACED,
            "status": "True" if condition.placed else "False",
            "reason": condition.reason,
            "message": shorten(condition.message),
            "lastTransitionTime": now,
        }
        patch = Patch(
            {"metadata": {"uid": pod.uid}, "status": {"conditions": [told]}},
            "application/strategic-merge-patch+json",
        )
        try:
            await self._client.patch(PODS, ObjectKey(pod.name, pod.namespace), patch, subresource="status")
        except (ConflictError, NotFoundError) as error:
            return Conflict(str(error))
        except ApiError as error:
            return Unclear(str(error))
        return None

    async def nominate_pod(
        self, pod: Pod, version: str, node: str | None, why: str
    ) -> PodObject | Conflict | Unclear:
        """Nominate a pod that others are sent away for, or (None) end that, if it is still at `version`."""
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        condition = {
            "type": CONDITION_PREEMPTOR,
            "status": "False" if node is None else "True",
            "reason": "NoRoom" if node is None else node,
            "message": why,
            "lastTransitionTime": now,
        }
        return await self._patch_status(pod, version, {"nominatedNodeName": node, "conditions": [condition]})

    async def hint_node(self, pod: Pod, version: str, node: str) -> PodObject | Conflict | Unclear:
        """Nominate a pod for nothing but speed, if it is still at `version`."""
        return await self._patch_status(pod, version, {"nominatedNodeName": node})

    async def _patch_status(
        self, pod: Pod, version: str, status: dict[str, object]
    ) -> PodObject | Conflict | Unclear:
        """Change a pod's status under the conditions of its UID and version."""
        patch = Patch(
            {"metadata": {"uid": pod.uid, "resourceVersion": version}, "status": status},
            "application/strategic-merge-patch+json",
        )
        key = ObjectKey(pod.name, pod.namespace)
        try:
            return (await self._client.patch(PODS, key, patch, subresource="status")).value
        except (ConflictError, NotFoundError) as error:
            return Conflict(str(error))
        except ApiError as error:
            return Unclear(str(error))

    async def evict_pod(self, pod: Pod, *, dry_run: bool = False) -> Done | Conflict | Refused | Unclear:
        """Ask a pod to leave."""
        try:
            await self._client.evict(ObjectKey(pod.name, pod.namespace), pod.uid, dry_run=dry_run)
        except (ConflictError, NotFoundError) as error:
            return Conflict(str(error))
        except (ThrottledError, DeniedError, InvalidError) as error:
            return Refused(str(error))
        except ApiError as error:
            return Unclear(str(error))
        return Done()

    async def read_pod(self, namespace: str, name: str) -> PodObject | Unclear | None:
        """Read a pod from the API server itself."""
        try:
            stored: Stored[PodObject] = await self._client.get(PODS, ObjectKey(name, namespace))
        except NotFoundError:
            return None
        except ApiError as error:
            return Unclear(str(error))
        return stored.value

    async def read_lock(self, node: str) -> NodeLock | Unclear | None:
        """Read HAMi's lock on a node from the API server itself."""
        try:
            meta = (await self._client.get(NODES, ObjectKey(node))).value.metadata
        except NotFoundError:
            return None
        except ApiError as error:
            return Unclear(str(error))
        return NodeLock((meta.annotations or {}).get(HAMI_LOCK, ""), meta.resource_version or "")

    async def write_lock(
        self, node: str, version: str, text: str | None
    ) -> Done | Conflict | Refused | Unclear:
        """Change HAMi's lock on a node, if the node is still at `version`."""
        patch = Patch({"metadata": {"resourceVersion": version, "annotations": {HAMI_LOCK: text}}})
        outcome = await _outcome_of(self._client.patch(NODES, ObjectKey(node), patch))
        return Done() if isinstance(outcome, Stored) else outcome

    async def _fenced_by_its_end(
        self, namespace: str, name: str, uid: str, why: str
    ) -> PodObject | Unclear | None:
        """Another pod has the name now: then the one that was meant is gone."""
        stored = await self.read_pod(namespace, name)
        if isinstance(stored, PodObject) and stored.metadata.uid == uid:
            return Unclear(why)
        return stored if isinstance(stored, Unclear) else None


async def _outcome_of(write: Awaitable[T]) -> T | Conflict | Refused | Unclear:
    """Carry out a write, and return what it returns, or what came of it."""
    try:
        return await write
    except (ConflictError, NotFoundError) as error:
        return Conflict(str(error))
    except AmbiguousError as error:
        return Unclear(str(error))
    except ApiError as error:
        return Refused(str(error))
