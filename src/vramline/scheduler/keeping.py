"""Keeps the history of one cluster: decisions, samples of its cards, and who used its memory for how long."""

import asyncio
from collections.abc import Iterator

from vramline.explain.history import History
from vramline.model.cluster import Cluster
from vramline.scheduler.hami_figures import count_hami_figures
from vramline.scheduler.metering import UsageMeter
from vramline.scheduler.sampling import CardSampler
from vramline.settings import HamiMetrics, Settings
from vramline.telemetry.archive import Archive, open_archive
from vramline.telemetry.metrics import Gauge, Sample

__all__ = ["Keeper"]

_AFTER_READY_S = 2.0
"""Pods that waited for the scheduler's start are decided about before anything is written down."""


class Keeper:
    """Archive, sampler and meter of one cluster, joined."""

    def __init__(
        self, cluster: Cluster, history: History, settings: Settings, *, every_s: float = 10.0
    ) -> None:
        """`history` gets back what is known of an earlier life; `every_s` is from sample to sample."""
        self.archive: Archive = open_archive(settings, clock=cluster.now)
        self.archive.serve(history)
        self._sampler = CardSampler(cluster, self.archive.keep_cards, grace_s=settings.release_grace_s)
        self._meter = UsageMeter(cluster)
        self._cluster, self._hami = cluster, settings.hami_metrics is HamiMetrics.ON
        self._every_s = every_s

    def figures(self) -> Iterator[Sample]:
        """Yield what a scrape should tell besides the state of the cluster."""
        yield from self._meter.samples()
        yield Sample(Gauge.HISTORY_LOST, self.archive.lost)
        if self._hami:
            yield from count_hami_figures(self._cluster)

    async def run(self, ready: asyncio.Event | None = None) -> None:
        """Sample, as soon as the cards are known, and write, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.archive.run())
            if ready is not None:
                await ready.wait()
                await asyncio.sleep(min(_AFTER_READY_S, self._every_s))
            tasks.create_task(self._sampler.run(self._every_s))
            tasks.create_task(self._meter.run(self._every_s))

    async def close(self) -> None:
        """Write the rest."""
        await self.archive.close()
