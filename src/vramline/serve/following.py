"""Lead only beside the kube-scheduler that leads.

kube-scheduler and Vramline run side by side in every pod of the Deployment and are elected separately. A
kube-scheduler asks the Vramline of its own pod, and only a leading Vramline binds: led by different pods,
neither would bind anything. So a replica stands for election only while kube-scheduler's Lease names its own
pod, and resigns when it no longer does.
"""

import asyncio
import contextlib

import structlog

from vramline.kube.client import KubeClient
from vramline.kube.failures import ApiError, NotFoundError
from vramline.kube.lease import Elector
from vramline.kube.objects import LEASES, ObjectKey

__all__ = ["Follower", "is_held_in"]

_LOOK_EVERY_S = 1.0
_LOOK_S = 5.0
_HOSTNAME_LENGTH = 63


def is_held_in(pod_name: str, holder: str) -> bool:
    """Whether a Lease is held by a program in this pod: it signs with its host name and a random part.

    A pod's host name is its name, cut to what a host name may have.
    """
    return holder.startswith(pod_name[:_HOSTNAME_LENGTH].rstrip("-.") + "_")


class Follower:
    """Stands for election while another Lease is held in its own pod."""

    def __init__(self, client: KubeClient, lease: ObjectKey, pod_name: str) -> None:
        self._client = client
        self._lease = lease
        self._pod_name = pod_name
        self._is_here = False
        self._log = structlog.get_logger().bind(lease=str(lease))

    async def run(self, elector: Elector, stop: asyncio.Event) -> None:
        """Take part in the election, on and off, until `stop` is set."""
        while not stop.is_set():
            if await self._look():
                await self._stand(elector, stop)
            else:
                await _pause(stop)

    async def _stand(self, elector: Elector, stop: asyncio.Event) -> None:
        """Take part until the other Lease is held elsewhere, then resign."""
        over = asyncio.Event()
        standing = asyncio.create_task(elector.run(over))
        try:
            while not stop.is_set() and not standing.done() and await self._look():
                await _pause(stop)
        finally:
            over.set()
            await standing

    async def _look(self) -> bool:
        """Whether the other Lease is held in this pod; while it cannot be read, as it was last seen."""
        before = self._is_here
        try:
            async with asyncio.timeout(_LOOK_S):
                holder = (await self._client.get(LEASES, self._lease)).value.spec.holder_identity or ""
            self._is_here = is_held_in(self._pod_name, holder)
        except NotFoundError:
            holder, self._is_here = "", False
        except (ApiError, TimeoutError) as error:
            self._log.warning("following.failed", problem=str(error) or f"no answer within {_LOOK_S:g} s")
            return before
        if self._is_here != before:
            self._log.info("following.changed", holder=holder, is_here=self._is_here)
        return self._is_here


async def _pause(stop: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LOOK_EVERY_S):
            await stop.wait()
