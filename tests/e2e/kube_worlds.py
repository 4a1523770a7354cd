"""What the tests of `kube` share: clients of a plane, and small objects."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from controlplane.plane import ControlPlane
from vramline.kube.client import KubeClient, Timing
from vramline.kube.objects import Document
from vramline.kube.pace import Pace
from vramline.kube.target import find_target

QUICK = Timing(connect_s=30.0, read_s=30.0, write_s=30, pace=Pace(first_s=0.01, most_s=0.05))
"""Tries again at once; what is slow because the machine is busy has not failed."""
IMPATIENT = replace(QUICK, write_s=3)


def kube_client(kubeconfig: Path, timing: Timing = QUICK) -> KubeClient:
    """Return a client that tries again at once; call it inside a running event loop."""
    return KubeClient(find_target({}, kubeconfig=kubeconfig), rng=random.Random(7), timing=timing)


def admin(plane: ControlPlane) -> KubeClient:
    """Return a client that may do everything."""
    return kube_client(plane.folder / "admin.kubeconfig")


def pod(name: str, **metadata: object) -> Document:
    """Return a pod that nobody schedules."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]},
    }


async def until(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    """Let other tasks run until something holds."""
    async with asyncio.timeout(seconds):
        while not is_so():  # noqa: ASYNC110 — what it waits for knows nothing of events
            await asyncio.sleep(0.005)
