"""When each pod of a batch was bound, as a watch saw it, and the CPU time that processes had used by then."""

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.processes import Child, wait_until
from controlplane.throughput.loops import run_quickly
from vramline.kube.client import KubeClient, Selection
from vramline.kube.mirror import Added, Change, Changed
from vramline.kube.objects import PODS
from vramline.kube.reflector import Reflector
from vramline.kube.target import find_target
from vramline.wire.kubernetes import PodObject

__all__ = ["Moment", "Progress", "watch_pods"]

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Moment:
    """A point of a run."""

    at: float
    cpu_s: dict[str, float]
    """By process, since it started."""


@dataclass(slots=True)
class Progress:
    """How far a batch is. Filled by a thread of its own."""

    pods: int
    processes: Callable[[], dict[str, Child]]
    """By name, those that have been started so far."""
    bound: set[str] = field(default_factory=set)
    synced: threading.Event = field(default_factory=threading.Event)
    first: Moment | None = None
    """When a tenth of the pods was bound."""
    last: Moment | None = None
    """When all were."""

    def see(self, change: Change[PodObject]) -> None:
        """Take in what the watch says."""
        if not isinstance(change, Added | Changed):
            self.synced.set()
            return
        pod = change.object.value
        if pod.spec is None or not pod.spec.node_name:
            return
        self.bound.add(pod.metadata.name or "")
        if self.first is None and len(self.bound) * 10 >= self.pods:
            self.first = self._now()
        if self.last is None and len(self.bound) == self.pods:
            self.last = self._now()

    def wait(self, seconds: float) -> None:
        """Wait until all are bound; say how far it went otherwise."""
        children = tuple(self.processes().values())
        try:
            wait_until(
                lambda: self.last is not None, f"{self.pods} pods bound", children=children, seconds=seconds
            )
        except TimeoutError as error:
            raise TimeoutError(f"{len(self.bound)} of {self.pods} pods bound: {error}") from None

    def _now(self) -> Moment:
        return Moment(
            time.perf_counter(), {name: _cpu_s(child.pid) for name, child in self.processes().items()}
        )


def watch_pods(kubeconfig: Path, namespace: str, progress: Progress) -> threading.Thread:
    """Start to watch a namespace until its batch is bound; return once the watch is open."""

    async def follow() -> None:
        rng = random.Random(1)
        async with KubeClient(find_target({}, kubeconfig=kubeconfig), rng=rng) as client:
            reflector = Reflector(client, PODS, rng=rng, selection=Selection(namespace=namespace))
            over = asyncio.Event()

            def see(change: Change[PodObject]) -> None:
                progress.see(change)
                if progress.last is not None:
                    over.set()

            running = asyncio.create_task(reflector.run(see))
            await over.wait()
            running.cancel()

    thread = threading.Thread(target=lambda: run_quickly(follow()), daemon=True)
    thread.start()
    if not progress.synced.wait(60.0):
        raise TimeoutError(f"the watch of {namespace} did not start")
    return thread


def _cpu_s(pid: int) -> float:
    """Return user and system time of a process, all its threads, from the kernel's own account."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
