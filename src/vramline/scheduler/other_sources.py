"""Where a node has no agent of ours, others may know what is on its cards: they are asked now and then.

What they say counts as a report does, with their name and its age, and never where our own agent speaks: it
knows whose the memory is. A source that does not answer is complained about once, and again after it did.
"""

import asyncio
from urllib.parse import quote

import httpx
import structlog

from vramline.errors import RequestError
from vramline.model.gpu import PhysicalGpu
from vramline.model.observation import Observation, ObservationSource
from vramline.scheduler.live import LiveState
from vramline.settings import ObservationFeed
from vramline.wire.exporters import SeenCard, metric_of, read_ages, read_exporter, read_prometheus
from vramline.wire.uuids import name_card

__all__ = ["OtherSources"]

_EVERY_S = 15.0
_ANSWER_S = 5.0
_MOST_BYTES = 32 * 2**20
_AT_ONCE = 16
_DCGM_COLLECTS_EVERY_S = 30.0
"""DCGM exporter answers from what it collected last, at most this long ago with its default settings."""
_BY_NODE = "{node}"


class OtherSources:
    """Asks exporters and Prometheus, and shows the cards what they say."""

    def __init__(
        self,
        live: LiveState,
        feeds: tuple[ObservationFeed, ...],
        *,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`transport` is the network unless given."""
        self._live = live
        self._feeds = feeds
        self._client = httpx.AsyncClient(timeout=_ANSWER_S, transport=transport)
        self._silent: set[str] = set()
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    async def run(self, stop: asyncio.Event) -> None:
        """Ask all sources again and again until `stop`."""
        async with self._client:
            while not stop.is_set():
                await self.ask()
                try:
                    async with asyncio.timeout(_EVERY_S):
                        await stop.wait()
                except TimeoutError:
                    continue

    async def ask(self) -> None:
        """Ask every source once."""
        questions = [self._ask(feed, url) for feed in self._feeds for url in self._urls_of(feed)]
        await asyncio.gather(*questions)

    def _urls_of(self, feed: ObservationFeed) -> list[str]:
        """Return the addresses of a source: one, or one for each node that no agent of ours watches."""
        if _BY_NODE not in feed.url:
            return [feed.url]
        heard = self._live.sightings.hears
        nodes = sorted(node.name for node in self._live.fleet.nodes if node.gpus and not heard(node.name))
        return [feed.url.replace(_BY_NODE, quote(node, safe="")) for node in nodes]

    async def _ask(self, feed: ObservationFeed, url: str) -> None:
        try:
            async with self._at_once:
                seen = await self._seen_by(feed, url)
        except (httpx.HTTPError, RequestError) as error:
            if url not in self._silent:
                self._silent.add(url)
                structlog.get_logger().warning(
                    "source.silent", source=feed.source, url=url, problem=str(error)
                )
            return
        self._silent.discard(url)
        for node, cards in seen.items():
            self._live.sightings.take_told(node, cards)

    async def _seen_by(self, feed: ObservationFeed, url: str) -> dict[str, dict[str, Observation]]:
        if feed.source is ObservationSource.PROMETHEUS:
            dated = await self._ask_prometheus(url)
        else:
            asked_at = self._live.now()
            page = (await self._get(url)).decode(errors="replace")
            dated = [(card, asked_at - _late_s(feed.source)) for card in read_exporter(page)]
        found: dict[str, dict[str, Observation]] = {}
        for card, at in dated:
            gpu = self._card_of(card)
            if gpu is not None and not self._live.sightings.hears(gpu.node):
                found.setdefault(gpu.node, {})[gpu.uuid] = card.observed(at, feed.source)
        return found

    async def _ask_prometheus(self, url: str) -> list[tuple[SeenCard, float]]:
        """Ask for what is in use, and for how long ago each of these figures was scraped."""
        dated: list[tuple[SeenCard, float]] = []
        for source in (ObservationSource.DCGM, ObservationSource.HAMI):
            metric, asked_at = metric_of(source), self._live.now()
            cards = read_prometheus(await self._query(url, metric))
            ages = read_ages(await self._query(url, f"time() - timestamp({metric})")) if cards else {}
            told_at = asked_at - _late_s(source)
            dated += [(card, told_at - ages[card.key]) for card in cards if card.key in ages]
        return dated

    async def _query(self, url: str, query: str) -> bytes:
        return await self._get(f"{url.rstrip('/')}/api/v1/query?query={quote(query, safe='')}")

    async def _get(self, url: str) -> bytes:
        async with self._client.stream("GET", url) as answer:
            answer.raise_for_status()
            body = bytearray()
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > _MOST_BYTES:
                    raise RequestError(subject=url, problem=f"answers with more than {_MOST_BYTES} bytes")
        return bytes(body)

    def _card_of(self, card: SeenCard) -> PhysicalGpu | None:
        """Return a card as it is known here; None: it is none of ours."""
        gpu = self._live.fleet.gpu(card.uuid)
        if gpu is None and card.index is not None:
            gpu = self._live.fleet.gpu(name_card(card.node, card.index))
        return gpu


def _late_s(source: ObservationSource) -> float:
    return _DCGM_COLLECTS_EVERY_S if source is ObservationSource.DCGM else 0.0
