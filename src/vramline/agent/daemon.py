"""The agent as a process: sample, attribute, report, stream; every part alone can fail without the others."""

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import structlog

from vramline.agent.addresses import find_replicas
from vramline.agent.attribution import Attributor
from vramline.agent.cluster import KubeReports
from vramline.agent.figures import CONTENT_TYPE, Figures, render_figures
from vramline.agent.publisher import Publisher, PublishingRules
from vramline.agent.replicas import count_replicas
from vramline.agent.reporting import NodeFacts
from vramline.agent.sampler import Sampler, next_tick
from vramline.agent.stream import Hooks, StreamRules, Streams
from vramline.agent.web import Page, serve_pages
from vramline.errors import TransientError, VramlineError
from vramline.kube.client import KubeClient
from vramline.kube.objects import REPORTS, ObjectKey
from vramline.probes.device import DeviceProbe
from vramline.settings import Address, Settings
from vramline.wire.admission_options import Backend
from vramline.wire.report_v1alpha1 import GpuReport

__all__ = ["AgentOptions", "AgentProcess"]

_DEVICES_EVERY_S = 60.0
_RECALL_S = 3.0
_LATEST_TICKS = 10
"""So many intervals without a sample, and the agent is not well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """What one agent does, besides the settings."""

    facts: NodeFacts
    schedulers: tuple[Address, ...] = ()
    """Names or addresses of the scheduler's replicas; none: nothing is streamed."""
    stream: StreamRules
    pod_resources: Path
    """kubelet's socket; a path at which there is none is no mistake."""
    device_plugins: Path
    """kubelet's folder of device plugins; of no interest where another backend is set."""
    proc: Path = Path("/proc")


@dataclass(slots=True)
class AgentProcess:
    """One agent."""

    settings: Settings
    options: AgentOptions
    probes: tuple[DeviceProbe, ...]
    client: KubeClient | None
    """None: nothing is reported."""
    listener: socket.socket | None
    clock: Callable[[], float] = time.monotonic
    figures: Figures = field(default_factory=Figures)
    _rng: random.Random = field(default_factory=random.Random)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`; then write the last report, if the API server is there."""
        log = structlog.get_logger()
        sampler = Sampler(
            self.options.facts, self.probes, Attributor(self.options.proc), self.figures, clock=self.clock
        )
        node = self.options.facts.node
        log.info("agent.started", node=node, sees_host_processes=sampler.attributor.sees_host)
        streams = self._streams(sampler)
        publisher = self._publisher()
        server = await self._serve(streams, publisher)
        work: list[Coroutine[object, object, None]] = [
            self._sample(sampler, streams, publisher),
            *(source.follow_events() for source in sampler.sources),
            self._follow_devices(sampler),
            streams.run(),
        ]
        if publisher is not None:
            work.append(publisher.run())
        if self.client is not None and self.settings.backend is Backend.PLUGIN:
            work.append(self._offer_slots(self.client, sampler, stop))
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each) for each in work]
            await stop.wait()
            for task in running:
                task.cancel()
        if server is not None:
            server.close()
        sampler.close()
        if publisher is not None:
            await _within(publisher.flush(), 2.0)
        log.info("agent.stopped", node=node)

    async def _sample(self, sampler: Sampler, streams: Streams, publisher: Publisher | None) -> None:
        """Look at the cards at every tick. A look that takes longer skips ticks; the rhythm stays."""
        interval_s = self.settings.sample_interval_s
        await self._recall(sampler)
        tick = self.clock()
        while True:
            taken = await sampler.sample()
            await streams.offer(taken)
            if publisher is not None:
                publisher.offer(taken.report)
            tick = next_tick(tick, self.clock(), interval_s)
            await asyncio.sleep(tick - self.clock())

    async def _recall(self, sampler: Sampler) -> None:
        """Read what the agent before this one said of the cards' health, if the API server is there."""
        if self.client is None:
            return
        key = ObjectKey(self.options.facts.node)
        with contextlib.suppress(VramlineError, TimeoutError):
            async with asyncio.timeout(_RECALL_S):
                report = (await self.client.get(REPORTS, key)).value
            healths = {gpu.uuid: gpu.health for gpu in report.gpus or () if gpu.uuid and gpu.health}
            sampler.recall(healths)

    def _count(self, streams: Streams, publisher: Publisher | None) -> None:
        self.figures.streams, self.figures.looks = streams.up, streams.looks
        if publisher is not None:
            self.figures.reports["written"] = publisher.writes
            self.figures.reports["failed"] = publisher.failures

    def _streams(self, sampler: Sampler) -> Streams:
        hooks = Hooks(find_replicas=lambda: find_replicas(self.options.schedulers), look=sampler.glance)
        return Streams(self.options.stream, hooks, self.clock, self._rng)

    def _publisher(self) -> Publisher | None:
        if self.client is None:
            return None
        rules = PublishingRules(
            at_least_every_s=self.settings.report_interval_s, threshold=self.settings.report_threshold
        )
        store = KubeReports(self.client, self.options.facts.node)
        return Publisher(store, rules, clock=self.clock, rng=self._rng)

    async def _follow_devices(self, sampler: Sampler) -> None:
        """Ask kubelet now and then how often each card is offered."""
        while True:
            if self.options.pod_resources.exists():
                found = await _count_devices(self.options.pod_resources)
                known = {**sampler.facts.replicas, **found}
                sampler.facts = msgspec.structs.replace(sampler.facts, replicas=known)
            await asyncio.sleep(_DEVICES_EVERY_S)

    async def _offer_slots(self, client: KubeClient, sampler: Sampler, stop: asyncio.Event) -> None:
        """Be kubelet's device plugin."""
        from vramline.agent.plugin import run_plugin  # noqa: PLC0415 — gRPC only where it is needed
        from vramline.agent.plugin_sources import plugin_options, real_sources  # noqa: PLC0415 — as above

        async def look(uuids: Collection[str]) -> GpuReport:
            return (await sampler.glance(tuple(uuids))).report

        sources = real_sources(
            client,
            self.options.facts.node,
            newest=lambda: self.figures.report,
            look=look,
            pod_resources=self.options.pod_resources,
            starts=self.figures.starts,
        )
        options = plugin_options(self.settings, self.options.device_plugins)
        await run_plugin(sources, options, stop)

    async def _serve(self, streams: Streams, publisher: Publisher | None) -> asyncio.Server | None:
        if self.listener is None:
            return None
        pages = {"/metrics": lambda: self._metrics(streams, publisher), "/healthz": self._health}
        return await serve_pages(self.listener, pages)

    def _metrics(self, streams: Streams, publisher: Publisher | None) -> Page:
        self._count(streams, publisher)
        return Page(render_figures(self.figures, self.clock()), content_type=CONTENT_TYPE)

    def _health(self) -> Page:
        """Alive is who samples, whatever the cards answer: a restart mends no driver."""
        at = self.figures.sampled_at
        if at is None:
            return Page(b"starting\n")
        silent_s = self.clock() - at
        if silent_s > max(30.0, _LATEST_TICKS * self.settings.sample_interval_s):
            return Page(f"no sample for {silent_s:.0f} s\n".encode(), "503 Service Unavailable")
        return Page(b"ok\n")


async def _count_devices(pod_resources: Path) -> dict[str, int]:
    """Return the devices of each card; empty: kubelet did not say."""
    from vramline.agent.pod_resources import list_devices  # noqa: PLC0415 — gRPC only where there is a kubelet

    try:
        return count_replicas(await list_devices(pod_resources))
    except TransientError as error:
        structlog.get_logger().info("kubelet.silent", error=str(error))
        return {}


async def _within(last: Coroutine[object, object, None], limit_s: float) -> None:
    try:
        async with asyncio.timeout(limit_s):
            await last
    except TimeoutError:
        structlog.get_logger().info("report.left")
