"""GPU memory times time: who claimed it, who used it, and what nobody did. Whole MiB and milliseconds."""

import asyncio
from collections import Counter
from collections.abc import Iterator

from vramline.explain.usage import Share, UsagePart, split_card
from vramline.model.cluster import Cluster
from vramline.telemetry.metrics import Gauge, Sample

__all__ = ["UsageMeter"]

_AT_ONCE = 20
"""Cards that are metered before others have their turn."""
_PAUSE_S = 0.04
"""Between them: 500 cards a second at most, so that a large fleet costs no more than a small one."""
_MOST_NAMESPACES = 1_000
OTHERS = "(others)"
"""Stands for all namespaces beyond that."""
_GIB_SECONDS = 1024 * 1000


class UsageMeter:
    """Adds up, per card, what stood since it was last metered. Of all replicas only the leader counts."""

    def __init__(self, cluster: Cluster) -> None:
        self.mib_ms: Counter[tuple[str, UsagePart]] = Counter()
        """By namespace (empty: nobody's) and part."""
        self._cluster = cluster
        self._since: dict[str, tuple[int, list[Share]]] = {}
        self._namespaces: set[str] = set()

    async def run(self, every_s: float = 10.0) -> None:
        """Meter until cancelled."""
        while True:
            await self.meter(pause_s=_PAUSE_S)
            await asyncio.sleep(every_s)

    async def meter(self, *, pause_s: float = 0.0) -> None:
        """Bring every card up to now, a few at a time."""
        for number, uuid in enumerate(list(self._cluster.fleet.columns.row_of)):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(pause_s)
            if self._cluster.fleet.gpu(uuid) is not None:
                self._meter_card(uuid)
        for uuid in self._since.keys() - self._cluster.fleet.columns.row_of.keys():
            del self._since[uuid]

    def samples(self) -> Iterator[Sample]:
        """Yield what was counted until now."""
        for (namespace, part), amount in sorted(self.mib_ms.items()):
            yield Sample(Gauge.VRAM_GIB_SECONDS, amount / _GIB_SECONDS, (namespace, part.value))

    def _meter_card(self, uuid: str) -> None:
        now_ms = int(self._cluster.now() * 1000)
        since_ms, stood = self._since.get(uuid, (now_ms, []))
        if now_ms > since_ms and self._cluster.leads():
            for share in stood:
                if share.mib:
                    self.mib_ms[self._bounded(share.namespace), share.part] += share.mib * (now_ms - since_ms)
        self._since[uuid] = max(now_ms, since_ms), self._split(uuid)

    def _split(self, uuid: str) -> list[Share]:
        fleet = self._cluster.fleet
        row = fleet.columns.row_of[uuid]
        max_age_s = self._cluster.rules_for(None).max_age_s
        fresh = fleet.columns.is_fresh(row, now=self._cluster.now(), max_age_s=max_age_s)
        seen = fleet.observation(uuid) if fresh else None
        return split_card(fleet.columns.card(row), fleet.ledger.of_card(uuid), fleet.account(uuid), seen)

    def _bounded(self, namespace: str) -> str:
        if namespace not in self._namespaces and len(self._namespaces) >= _MOST_NAMESPACES:
            return OTHERS
        self._namespaces.add(namespace)
        return namespace
