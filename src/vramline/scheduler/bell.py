"""The bell that makes kube-scheduler try refused pods again.

kube-scheduler tries a pod that an extender refused when some object it watches changes. Most such objects are
not ours to write, and a changed Node is passed over for pods with an extended resource that only an extender
knows (Kubernetes 1.30). A CSIStorageCapacity is namespaced, is watched by every kube-scheduler, and wakes
without a further question; one that names no storage class and no node that exists says nothing to anybody.
"""

from typing import Final, Protocol

import structlog

from vramline.kube.client import KubeClient, Patch
from vramline.kube.failures import ApiError, NotFoundError
from vramline.kube.objects import STORAGE_CAPACITIES, Document, ObjectKey
from vramline.wire.keys import FREED
from vramline.wire.times import format_time

__all__ = ["BELL", "Bell", "StorageBell"]

BELL: Final = "vramline-wake"


class Bell(Protocol):
    """Something that can be rung."""

    async def ring(self, at: float) -> bool:
        """Have every refused pod tried again; False: that could not be said."""


class StorageBell:
    """An object of our own namespace, changed so that kube-scheduler notices."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._key = ObjectKey(BELL, namespace)

    async def ring(self, at: float) -> bool:
        """Change the object, or make it: kube-scheduler notices either."""
        stamp: Document = {"annotations": {FREED: format_time(at)}}
        try:
            await self._client.patch(STORAGE_CAPACITIES, self._key, Patch({"metadata": stamp}))
        except NotFoundError:
            return await self._make(stamp)
        except ApiError as error:
            _warn(error)
            return False
        return True

    async def _make(self, stamp: Document) -> bool:
        labels = {"app.kubernetes.io/name": "vramline"}
        document: Document = {"metadata": {"name": BELL, "labels": labels, **stamp}, "storageClassName": BELL}
        try:
            await self._client.create(STORAGE_CAPACITIES, document, namespace=self._key.namespace)
        except ApiError as error:
            _warn(error)
            return False
        return True


def _warn(error: ApiError) -> None:
    structlog.get_logger().warning("pods.not_woken", error=str(error))
