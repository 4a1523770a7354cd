"""Keeps the history of one cluster: its decisions, samples of its cards, in the archive of the settings."""

import asyncio

from vramline.explain.history import History
from vramline.model.cluster import Cluster
from vramline.scheduler.sampling import CardSampler
from vramline.settings import Settings
from vramline.telemetry.archive import Archive, open_archive

__all__ = ["Keeper"]


class Keeper:
    """Archive and sampler of one cluster, joined."""

    def __init__(
        self, cluster: Cluster, history: History, settings: Settings, *, every_s: float = 10.0
    ) -> None:
        """`history` gets back what is known of an earlier life; `every_s` is from sample to sample."""
        self.archive: Archive = open_archive(settings, clock=cluster.now)
        self.archive.serve(history)
        self._sampler = CardSampler(cluster, self.archive.keep_cards, grace_s=settings.release_grace_s)
        self._every_s = every_s

    async def run(self, ready: asyncio.Event | None = None) -> None:
        """Sample, as soon as the cards are known, and write, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.archive.run())
            if ready is not None:
                await ready.wait()
            tasks.create_task(self._sampler.run(self._every_s))

    async def close(self) -> None:
        """Write the rest."""
        await self.archive.close()
