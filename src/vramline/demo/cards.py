"""The truth behind the demo: what really is on each card. The scheduler sees only what a look tells."""

from collections.abc import Iterable

import msgspec

from vramline.errors import InvariantError
from vramline.model.gpu import PhysicalGpu
from vramline.model.observation import NOT_REPORTED, GpuProcess, Observation
from vramline.units import Mib

__all__ = ["CardProcess", "SimulatedCard"]

_BUSY_PERCENT_EACH = 23


class CardProcess(msgspec.Struct, frozen=True):
    """One process with memory on a card; `pod_uid` None: it belongs to no pod."""

    pid: int
    mib: Mib
    pod_uid: str | None


class SimulatedCard:
    """One card and the processes on it. It refuses more than it has, as a real one does."""

    def __init__(self, gpu: PhysicalGpu, processes: Iterable[CardProcess] = ()) -> None:
        self.gpu = gpu
        self._processes = {process.pid: process for process in processes}

    @property
    def processes(self) -> tuple[CardProcess, ...]:
        """Everything that holds memory now."""
        return tuple(self._processes.values())

    @property
    def used(self) -> Mib:
        """What is taken, without the driver's own part."""
        return Mib(sum(process.mib for process in self._processes.values()))

    @property
    def room(self) -> Mib:
        """What a process could still allocate."""
        return Mib(self.gpu.usable - self.used)

    def start(self, process: CardProcess) -> None:
        """A process allocates its memory; `InvariantError` where the card does not have it."""
        if process.mib > self.room:
            raise InvariantError(
                f"{self.gpu.uuid}: out of memory, {process.mib} MiB wanted, {self.room} left"
                f" (pod {process.pod_uid})"
            )
        self._processes[process.pid] = process

    def stop_pod(self, pod_uid: str) -> None:
        """The processes of a pod end."""
        self._processes = {pid: p for pid, p in self._processes.items() if p.pod_uid != pod_uid}

    def stop(self, pid: int) -> None:
        """One process ends."""
        del self._processes[pid]

    def look(self, at: float) -> Observation:
        """Return what an agent reads off the card. A board with unified memory lists no processes."""
        listed = tuple(
            GpuProcess(pid=process.pid, used=process.mib, pod_uid=process.pod_uid)
            for process in self._processes.values()
        )
        busy = min(100, _BUSY_PERCENT_EACH * sum(process.pod_uid is not None for process in self.processes))
        return Observation(
            at=at,
            used=self.used,
            processes=NOT_REPORTED if self.gpu.unified else listed,
            utilization_percent=busy,
            temperature_c=35 + busy // 3,
        )
