"""Where a node has no agent of ours, others may know what is on its cards: they are asked now and then.

What they say counts as a report does, with their name and its age, and never where our own agent speaks: it
knows whose the memory is. A source that does not answer is complained about once, and again after it did.
"""

import asyncio
from urllib.parse import quote

import httpx
import structlog

from vramline.errors import RequestError
from vramline.model.observation import Observation
from vramline.probes.exporters import ExporterClient
from vramline.scheduler.live import LiveState
from vramline.settings import ObservationFeed
from vramline.wire.exporters import find_card

__all__ = ["OtherSources"]

_EVERY_S = 15.0
_AT_ONCE = 16
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
        self._exporters = ExporterClient(live.now, transport=transport)
        self._silent: set[str] = set()
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    async def run(self, stop: asyncio.Event) -> None:
        """Ask all sources again and again until `stop`."""
        async with self._exporters:
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
        found: dict[str, dict[str, Observation]] = {}
        for told in await self._exporters.ask(feed.source, url):
            gpu = find_card(self._live.fleet, told.card)
            if gpu is not None and not self._live.sightings.hears(gpu.node):
                found.setdefault(gpu.node, {})[gpu.uuid] = told.card.observed(told.at, feed.source)
        return found
