"""What the binder needs of the API server, as values: a write happened, it did not, or nobody knows."""

from typing import Protocol

import msgspec

from vramline.wire.bind_request_v1alpha1 import BindRequest
from vramline.wire.kubernetes import PodObject
from vramline.wire.ledger_v1alpha1 import GpuLedger
from vramline.wire.reservation_pod import Reservation

__all__ = ["BinderStore", "Failed", "StoredRequest", "Taken"]


class Taken(msgspec.Struct, frozen=True):
    """Somebody else wrote first. Nothing was stored."""

    detail: str


class Failed(msgspec.Struct, frozen=True):
    """It was refused, or nobody knows; what is there now tells."""

    detail: str


class StoredRequest(msgspec.Struct, frozen=True):
    """A request, and the version that the next write must name."""

    request: BindRequest
    version: int


class BinderStore(Protocol):
    """The API server, as far as reservations and requests are concerned."""

    async def make_pod(self, namespace: str, manifest: dict[str, object]) -> PodObject | Taken | Failed:
        """Create a reservation pod; Taken: there is one of this name."""
        ...

    async def read_pod(self, namespace: str, name: str) -> PodObject | Failed | None:
        """Read a pod past every cache; None: there is none."""
        ...

    async def end_pod(self, namespace: str, reservation: Reservation, *, now: bool) -> Failed | None:
        """Delete a reservation pod, if it still is this one; `now`: no kubelet is there to end it."""
        ...

    async def read_ledger(self, node: str) -> GpuLedger | Failed | None:
        """Read a ledger past every cache; None: there is none."""
        ...

    async def write_request(
        self, request: BindRequest, version: int | None
    ) -> StoredRequest | Taken | Failed:
        """Create a request (None), or replace exactly this version."""
        ...

    async def read_request(self, namespace: str, name: str) -> StoredRequest | Failed | None:
        """Read a request past every cache; None: there is none."""
        ...

    async def drop_request(self, request: StoredRequest) -> Failed | None:
        """Delete a request of an earlier pod of the same name."""
        ...
