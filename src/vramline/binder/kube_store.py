"""The binder's store on a real API server."""

from vramline.binder.store import Failed, StoredRequest, Taken
from vramline.errors import RequestError
from vramline.kube.client import KubeClient, Preconditions
from vramline.kube.failures import ApiError, ConflictError, NotFoundError
from vramline.kube.objects import BIND_REQUESTS, LEDGERS, PODS, ObjectKey
from vramline.wire.bind_request_v1alpha1 import BindRequest
from vramline.wire.kubernetes import PodObject
from vramline.wire.ledger_v1alpha1 import GpuLedger
from vramline.wire.reservation_pod import Reservation

__all__ = ["KubeBinderStore"]


class KubeBinderStore:
    """Reservation pods and requests at the API server. Satisfies `store.BinderStore`."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def make_pod(self, namespace: str, manifest: dict[str, object]) -> PodObject | Taken | Failed:
        """Create a reservation pod."""
        try:
            return (await self._client.create(PODS, manifest, namespace=namespace)).value
        except ConflictError as error:
            return Taken(str(error))
        except ApiError as error:
            return Failed(str(error))

    async def read_pod(self, namespace: str, name: str) -> PodObject | Failed | None:
        """Read a pod from the API server itself."""
        try:
            return (await self._client.get(PODS, ObjectKey(name, namespace))).value
        except NotFoundError:
            return None
        except ApiError as error:
            return Failed(str(error))

    async def end_pod(self, namespace: str, reservation: Reservation, *, now: bool) -> Failed | None:
        """Delete a reservation pod under the condition of its UID."""
        try:
            await self._client.delete(
                PODS,
                ObjectKey(reservation.name, namespace),
                preconditions=Preconditions(uid=reservation.uid),
                grace_s=0 if now else None,
            )
        except (NotFoundError, ConflictError):
            return None  # it is gone, and perhaps another one has its name
        except ApiError as error:
            return Failed(str(error))
        return None

    async def read_ledger(self, node: str) -> GpuLedger | Failed | None:
        """Read a ledger from the API server itself."""
        try:
            return (await self._client.get(LEDGERS, ObjectKey(node))).value
        except NotFoundError:
            return None
        except (ApiError, RequestError) as error:
            return Failed(str(error))

    async def write_request(
        self, request: BindRequest, version: int | None
    ) -> StoredRequest | Taken | Failed:
        """Create a request, or replace it under the condition of its version."""
        key = ObjectKey(request.name, request.namespace)
        try:
            if version is None:
                stored = await self._client.create(BIND_REQUESTS, request, namespace=key.namespace)
            else:
                stored = await self._client.update(BIND_REQUESTS, key, request, version=version)
        except (ConflictError, NotFoundError) as error:
            return Taken(str(error))
        except ApiError as error:
            return Failed(str(error))
        return StoredRequest(stored.value, stored.version)

    async def read_request(self, namespace: str, name: str) -> StoredRequest | Failed | None:
        """Read a request from the API server itself."""
        try:
            stored = await self._client.get(BIND_REQUESTS, ObjectKey(name, namespace))
        except NotFoundError:
            return None
        except (ApiError, RequestError) as error:
            return Failed(str(error))
        return StoredRequest(stored.value, stored.version)

    async def drop_request(self, request: StoredRequest) -> Failed | None:
        """Delete a request in the version that was seen."""
        key = ObjectKey(request.request.name, request.request.namespace)
        condition = Preconditions(resource_version=str(request.version))
        try:
            await self._client.delete(BIND_REQUESTS, key, preconditions=condition)
        except (NotFoundError, ConflictError):
            return None
        except ApiError as error:
            return Failed(str(error))
        return None
