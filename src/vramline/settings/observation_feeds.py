"""Who else may know what is on the cards: the setting `observations`."""

import re

import msgspec

from vramline.model.observation import ObservationSource

__all__ = ["ObservationFeed", "as_observations", "read_feeds"]

_FEED_URL = re.compile(r"https?://(?:[A-Za-z0-9.:\[\]_-]|\{node\})+(?:/[!-~]*)?", re.ASCII)


class ObservationFeed(msgspec.Struct, frozen=True):
    """Somebody other than an agent of ours who knows what is on the cards, and where to ask."""

    source: ObservationSource
    url: str


_FEEDS = {
    "prometheus": ObservationSource.PROMETHEUS,
    "dcgm": ObservationSource.DCGM,
    "hami": ObservationSource.HAMI,
}


def read_feeds(text: str) -> tuple[ObservationFeed, ...]:
    """Read `prometheus=URL, dcgm=URL, hami=URL`; a URL may have `{node}` in it.

    >>> read_feeds("dcgm=http://{node}:9400/metrics")[0].url
    'http://{node}:9400/metrics'
    """
    feeds = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        kind, _, url = part.partition("=")
        if kind not in _FEEDS:
            raise ValueError(f"names {kind!r}, which is no kind of source")
        if not _FEED_URL.fullmatch(url):
            raise ValueError(f"has no address of {kind} that can be asked")
        if "{node}" in url and kind == "prometheus":
            raise ValueError("asks a Prometheus for every node; one answers for all")
        feeds.append(ObservationFeed(_FEEDS[kind], url))
    return tuple(feeds)


def as_observations(raw: object) -> str:
    """Read a list of sources, and keep it as it is written; empty is none."""
    if not isinstance(raw, str):
        raise ValueError("is not a text; put it in quotes")  # noqa: TRY004 — as every parser of a setting
    read_feeds(raw)
    return raw.strip()
