"""Ask those who watch cards for others: DCGM exporter, HAMi's vGPUmonitor, a Prometheus that scrapes either.

Every figure comes with the time from which it is: nobody's word is younger than what it is about.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import quote

import httpx
import msgspec

from vramline.errors import RequestError
from vramline.model.observation import ObservationSource
from vramline.wire.exporters import SeenCard, metric_of, metrics_of, read_ages, read_exporter, read_prometheus

__all__ = ["ExporterClient", "ToldCard"]

_ANSWER_S = 5.0
_MOST_BYTES = 32 * 2**20
_DCGM_COLLECTS_EVERY_S = 30.0
"""DCGM exporter answers from what it collected last, at most this long ago with its default settings."""


class ToldCard(msgspec.Struct, frozen=True):
    """What somebody says of a card, and from when it is."""

    card: SeenCard
    at: float


class ExporterClient:
    """Asks over HTTP; raises `httpx.HTTPError` or `RequestError` where no sensible answer comes."""

    def __init__(
        self, clock: Callable[[], float], *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        """`transport` is the network unless given."""
        self._clock = clock
        self._client = httpx.AsyncClient(timeout=_ANSWER_S, transport=transport)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    async def ask(self, source: ObservationSource, url: str) -> list[ToldCard]:
        """Ask one source for all the cards that it knows."""
        if source is ObservationSource.PROMETHEUS:
            return await self._ask_prometheus(url)
        asked_at = self._clock()
        page = (await self._get(url)).decode(errors="replace")
        return [ToldCard(card, asked_at - _late_s(source)) for card in read_exporter(page)]

    async def _ask_prometheus(self, url: str) -> list[ToldCard]:
        """Ask for what is in use, and for how long ago each of these figures was scraped."""
        told: list[ToldCard] = []
        for source in (ObservationSource.DCGM, ObservationSource.HAMI):
            asked_at = self._clock()
            wanted = f'{{__name__=~"{"|".join(metrics_of(source))}"}}'
            cards = read_prometheus(await self._query(url, wanted))
            age = f"time() - timestamp({metric_of(source)})"
            ages = read_ages(await self._query(url, age)) if cards else {}
            told_at = asked_at - _late_s(source)
            told += [ToldCard(card, told_at - ages[card.key]) for card in cards if card.key in ages]
        return told

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


def _late_s(source: ObservationSource) -> float:
    return _DCGM_COLLECTS_EVERY_S if source is ObservationSource.DCGM else 0.0
