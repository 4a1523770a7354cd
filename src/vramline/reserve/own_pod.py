"""The one thing that a reservation pod writes: on itself, which card it holds."""

import asyncio
import random
import time

from vramline.kube.client import KubeClient, Patch
from vramline.kube.failures import AmbiguousError, UnavailableError
from vramline.kube.objects import PODS, ObjectKey
from vramline.kube.pace import Pace, delay_s
from vramline.kube.target import Target
from vramline.wire.keys import KAI_RESERVED_UUID, RESERVED_GPU

__all__ = ["write_card"]

_PACE = Pace(first_s=0.2, most_s=5.0)


async def write_card(target: Target, pod: ObjectKey, uuid: str, *, within_s: float) -> None:
    """Say it under our key, and under the one that KAI's tools look for. Raises `ApiError`.

    The same words may be written any number of times, so that a write whose answer was lost is sent again.
    """
    rng = random.Random()  # noqa: S311 — jitter, not secrets
    until, failures = time.monotonic() + within_s, 0
    patch = Patch({"metadata": {"annotations": {RESERVED_GPU: uuid, KAI_RESERVED_UUID: uuid}}})
    async with KubeClient(target, rng=rng) as client:
        while True:
            try:
                await client.patch(PODS, pod, patch)
            except (UnavailableError, AmbiguousError):
                failures += 1
                wait_s = delay_s(_PACE, failures, rng)
                if time.monotonic() + wait_s > until:
                    raise
                await asyncio.sleep(wait_s)
            else:
                return
