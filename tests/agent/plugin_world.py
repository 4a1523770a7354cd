"""A node for the plugin: what its cards say, what its ledger promises, and whose each slot is."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from agent.stand_in_kubelet import PluginClient, StandInKubelet
from vramline.agent.plugin import PluginOptions, run_plugin
from vramline.agent.plugin_check import CheckOptions, NodeSources
from vramline.agent.pod_resources import HeldDevice
from vramline.errors import TransientError
from vramline.model.ask import RealtimeMode
from vramline.model.claim import Claim
from vramline.model.gpu import Health
from vramline.units import Mib
from vramline.wire.ledger_v1alpha1 import GpuLedger
from vramline.wire.report_v1alpha1 import GpuReport, ReportedGpu, ReportedProcess

__all__ = ["NodeWorld", "card", "claim", "registered", "run", "until", "used_by"]


def card(
    uuid: str = "GPU-a", *processes: ReportedProcess, total: int = 24_000, health: Health = Health.HEALTHY
) -> ReportedGpu:
    used = sum(each.used_mib or 0 for each in processes)
    return ReportedGpu(uuid=uuid, total_mib=total, used_mib=used, health=health, processes=processes)


def used_by(pod_uid: str | None, mib: int) -> ReportedProcess:
    return ReportedProcess(pid=7, used_mib=mib, pod_uid=pod_uid)


def claim(pod: str, mib: int, gpu: str = "GPU-a", mode: RealtimeMode = RealtimeMode.STRICT) -> Claim:
    return Claim(pod_uid=f"uid-of-{pod}", pod=pod, gpu=gpu, mib=Mib(mib), mode=mode)


@dataclass
class NodeWorld:
    """Sources that a test may change at any time; None stands for one that does not answer."""

    cards: tuple[ReportedGpu, ...] | None = (card(),)
    claims: tuple[Claim, ...] | None = ()
    slots: dict[str, str] | None = field(default_factory=dict)
    """Holder (namespace/name) by slot."""
    looks: list[set[str]] = field(default_factory=list)
    """Which cards were looked at, in order."""
    look_answers: bool = True
    now: float = 100.0
    starts: Counter[str] = field(default_factory=Counter)

    def sources(self) -> NodeSources:
        return NodeSources(
            node="n1",
            newest=self._newest,
            look=self._look,
            ledger=self._ledger,
            held_devices=self._held,
            clock=lambda: self.now,
            starts=self.starts,
        )

    def _newest(self) -> GpuReport | None:
        return None if self.cards is None else GpuReport(node="n1", observed_at=100.0, gpus=self.cards)

    async def _look(self, gpus: Collection[str]) -> GpuReport:
        self.looks.append(set(gpus))
        if not self.look_answers:
            raise TransientError("the driver does not answer")
        return GpuReport(node="n1", observed_at=100.0, gpus=self.cards)

    async def _ledger(self) -> GpuLedger | None:
        if self.claims is None:
            raise TransientError("the API server does not answer")
        return GpuLedger(node="n1", claims=self.claims)

    async def _held(self) -> Collection[HeldDevice]:
        if self.slots is None:
            raise TransientError("kubelet does not answer")
        return [
            HeldDevice(
                namespace=pod.split("/")[0],
                pod=pod.split("/")[1],
                container="main",
                resource="vramline.io/gpu",
                device=slot,
            )
            for slot, pod in self.slots.items()
        ]


@contextlib.asynccontextmanager
async def run(
    world: NodeWorld, folder: Path, *, per_card: int = 4, refuses_unseen: bool = False
) -> AsyncIterator[StandInKubelet]:
    """Run the plugin beside a kubelet that has not started yet."""
    check = CheckOptions(margin=Mib(100), max_age_s=5.0, refuses_unseen=refuses_unseen)
    options = PluginOptions(slots_per_card=per_card, check=check, folder=folder)
    stop = asyncio.Event()
    running = asyncio.create_task(run_plugin(world.sources(), options, stop))
    kubelet = StandInKubelet(folder)
    try:
        yield kubelet
    finally:
        stop.set()
        await asyncio.wait_for(running, 10.0)
        await kubelet.stop()


async def registered(kubelet: StandInKubelet, times: int = 1) -> PluginClient:
    """Wait for a registration and for the first list of devices after it."""
    await until(lambda: len(kubelet.registered) >= times)
    await until(lambda: kubelet.plugin is not None and kubelet.plugin.lists > 0)
    assert kubelet.plugin is not None
    return kubelet.plugin


async def until(is_so: Callable[[], bool], seconds: float = 15.0) -> None:
    """Let other tasks run until something holds."""
    async with asyncio.timeout(seconds):
        while not is_so():  # noqa: ASYNC110 — what it waits for knows nothing of events
            await asyncio.sleep(0.01)
