"""Reservation pods and BindRequests in the scheduler's process: what is heard, held, kept and taken up."""

import asyncio
import time
from collections.abc import Callable

import structlog

from vramline.binder.binder import Binder
from vramline.binder.holds import Holds
from vramline.binder.keeper import Keeper, LostCard, Stranger
from vramline.binder.kube_store import KubeBinderStore
from vramline.binder.maker import Maker
from vramline.binder.parts import Parts
from vramline.binder.requests import Requests
from vramline.binder.store import StoredRequest
from vramline.kube.client import KubeClient
from vramline.kube.events import Notice, Regarding, Severity
from vramline.kube.objects import Stored
from vramline.scheduler.commit import Committer
from vramline.scheduler.live import LiveState
from vramline.settings import Settings
from vramline.settings.platforms import profile_for
from vramline.wire.admission_options import Backend
from vramline.wire.bind_request_v1alpha1 import BindRequest
from vramline.wire.kubernetes import PodObject
from vramline.wire.reservation_pod import ReservationOptions

__all__ = ["Binding", "open_binding"]

_EVERY_S = 1.0


class Binding:
    """The binder of one process, and what it hears."""

    def __init__(self, client: KubeClient, live: LiveState, settings: Settings) -> None:
        self._live = live
        store = KubeBinderStore(client)
        options = ReservationOptions(
            namespace=settings.reservation_namespace, image=settings.reservation_image
        )
        holds = Holds(options.namespace)
        maker = Maker(store, holds, options, lambda node: profile_for(node.platform, settings.platforms))
        self._parts = Parts(live, holds, maker, Requests(store), store, time.monotonic)
        self.holder = Binder(self._parts, within_s=settings.bind_within_s)

    def take_pod(self, pod: PodObject) -> None:
        """A pod was created or changed."""
        self._parts.holds.take(pod)

    def drop_pod(self, uid: str) -> None:
        """A pod is gone."""
        self._parts.holds.drop(uid)

    def take_request(self, stored: Stored[BindRequest]) -> None:
        """A request was created or changed."""
        self._parts.requests.take(StoredRequest(stored.value, stored.version))

    def drop_request(self, namespace: str, name: str) -> None:
        """A request is gone."""
        self._parts.requests.drop(namespace, name)

    async def run(self, committer: Committer, synced: asyncio.Event, tell: Callable[[Notice], None]) -> None:
        """Keep reservations in step with claims, and take up what others began, until cancelled."""
        keeper = Keeper(
            self._parts,
            epoch=committer.term,
            bind=committer.bind,
            tell=lambda trouble: tell(notice_of_trouble(trouble)),
        )
        await synced.wait()
        while True:
            await keeper.round()
            self._live.sightings.freed.update(self.holder.end_bars())  # who waited for that is woken
            await self._parts.holds.change(_EVERY_S)


def open_binding(client: KubeClient, live: LiveState, settings: Settings) -> Binding | None:
    """Return what holds cards for pods; None: Vramline's own plugin does, or nobody said by which image."""
    if settings.backend is not Backend.RESERVATION:
        return None
    if not settings.reservation_image:
        structlog.get_logger().warning("reservations.off", problem="no reservationImage is set")
        return None
    return Binding(client, live, settings)


def notice_of_trouble(trouble: LostCard | Stranger) -> Notice:
    """Say on its Node that kubelet gave a shared card, or any, to somebody whom Vramline did not place."""
    if isinstance(trouble, LostCard):
        reason = "CardNotHeld"
        note = (
            f"GPU {trouble.card} is used by pods, and kubelet has no device left to reserve it with:"
            " a pod that Vramline did not place may have been given the same card"
        )
    else:
        reason = "BypassingPod"
        held = ", ".join(f"{mib} MiB of {card}" for card, mib in trouble.holds) or "nothing yet"
        note = f"kubelet gave GPU devices to {trouble.pod}, which Vramline did not place; counted: {held}"
    return Notice(
        regarding=Regarding(kind="Node", name=trouble.node, uid=trouble.node),
        reason=reason,
        action="Reserving",
        note=note,
        severity=Severity.WARNING,
    )
