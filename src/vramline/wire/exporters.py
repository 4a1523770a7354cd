"""What others saw on the cards: DCGM exporter, HAMi's vGPUmonitor, and a Prometheus that scrapes either.

Text of an exporter and answers of Prometheus' HTTP API become the same thing: how much is in use on which
card. Only physical cards count; what is said of a MIG instance is left out. Docs: docs/realtime.md.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from vramline.errors import RequestError
from vramline.model.fleet import Fleet
from vramline.model.gpu import PhysicalGpu
from vramline.model.observation import NOT_REPORTED, Observation, ObservationSource
from vramline.units import MAX_MIB, Mib
from vramline.wire.uuids import card_of, name_card

__all__ = [
    "CardKey",
    "SeenCard",
    "find_card",
    "metric_of",
    "metrics_of",
    "read_ages",
    "read_exporter",
    "read_prometheus",
]

DCGM_USED = "DCGM_FI_DEV_FB_USED"
DCGM_UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"
HAMI_USED = "hami_host_gpu_memory_used_bytes"
DCGM_TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
_WANTED = frozenset({DCGM_USED, DCGM_UTILIZATION, DCGM_TEMPERATURE, HAMI_USED})
_BYTES_PER_MIB = 1024 * 1024
_LONGEST_LINE = 16_384

_LINE = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)\{(?P<labels>.*)\}\s+(?P<value>\S+)(?:\s+-?\d+)?\s*", re.ASCII)
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"\s*,?', re.ASCII)
_ESCAPE = re.compile(r"\\(.)")


CardKey = tuple[str, str, int | None]
"""Node, UUID and index, as far as they are told."""


class SeenCard(msgspec.Struct, frozen=True, kw_only=True):
    """What a metric says of one card."""

    node: str
    """As the metric names it; empty: it does not."""
    uuid: str
    """Empty: the metric does not tell it."""
    index: int | None = None
    used: Mib
    utilization_percent: int | None = None
    temperature_c: int | None = None

    @property
    def key(self) -> CardKey:
        """What it is called."""
        return self.node, self.uuid, self.index

    def observed(self, at: float, source: ObservationSource) -> Observation:
        """Return it as a look at the card at this time. Nobody listed processes."""
        busy, warm = self.utilization_percent, self.temperature_c
        return Observation(
            at=at,
            used=self.used,
            utilization_percent=NOT_REPORTED if busy is None else busy,
            temperature_c=NOT_REPORTED if warm is None else warm,
            source=source,
        )


class _Series(msgspec.Struct, frozen=True):
    name: str
    labels: Mapping[str, str]
    value: float


class _Result(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct, frozen=True):
    result: list[_Result] = []


class _Answer(msgspec.Struct, frozen=True):
    status: str
    data: _Data = _Data()
    error: str = ""


_ANSWER = msgspec.json.Decoder(_Answer)


def metric_of(source: ObservationSource) -> str:
    """Return the metric of memory in use of an exporter."""
    return HAMI_USED if source is ObservationSource.HAMI else DCGM_USED


def metrics_of(source: ObservationSource) -> tuple[str, ...]:
    """Return every metric of an exporter that is read."""
    return (
        (HAMI_USED,) if source is ObservationSource.HAMI else (DCGM_USED, DCGM_UTILIZATION, DCGM_TEMPERATURE)
    )


def find_card(fleet: Fleet, card: SeenCard) -> PhysicalGpu | None:
    """Return a card as it is known in a fleet; None: it is none of its."""
    gpu = fleet.gpu(card.uuid)
    if gpu is None and card.index is not None:
        gpu = fleet.gpu(name_card(card.node, card.index))
    return gpu


def read_exporter(text: str) -> list[SeenCard]:
    """Read the page of an exporter; lines that are no metric of ours, or make no sense, are passed over.

    >>> page = 'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1",Hostname="n1"} 6144'
    >>> [(card.node, card.uuid, card.used) for card in read_exporter(page)]
    [('n1', 'GPU-1', 6144)]
    """
    return _cards_of(_series_in(text))


def read_prometheus(body: bytes, *, subject: str = "Prometheus") -> list[SeenCard]:
    """Read the answer to an instant query for a metric; raises `RequestError` where it is none."""
    found = []
    for each in _results_in(body, subject):
        value = _number(each.value[1])
        if value is not None:
            found.append(_Series(each.metric.get("__name__", ""), each.metric, value))
    return _cards_of(found)


def read_ages(body: bytes, *, subject: str = "Prometheus") -> dict[CardKey, float]:
    """Read the answer to a query for ages in seconds: how old the figure of each card is."""
    ages = {}
    for each in _results_in(body, subject):
        age_s = _number(each.value[1])
        if age_s is not None:
            ages[_card_key(each.metric)] = max(0.0, age_s)
    return ages


def _results_in(body: bytes, subject: str) -> list[_Result]:
    try:
        answer = _ANSWER.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(subject=subject, problem=f"gives no answer that can be read ({error})") from None
    if answer.status != "success":
        raise RequestError(subject=subject, problem=f"refuses the query: {answer.error or answer.status}")
    return answer.data.result


def _series_in(text: str) -> Iterator[_Series]:
    for line in text.splitlines():
        name = line.partition("{")[0]
        if name not in _WANTED or len(line) > _LONGEST_LINE:
            continue
        found = _LINE.fullmatch(line)
        value = None if found is None else _number(found["value"])
        if found is not None and value is not None:
            labels = {key: _ESCAPE.sub(r"\1", word) for key, word in _LABEL.findall(found["labels"])}
            yield _Series(name, labels, value)


def _cards_of(series: Iterable[_Series]) -> list[SeenCard]:
    used: dict[CardKey, Mib] = {}
    busy: dict[CardKey, int] = {}
    warm: dict[CardKey, int] = {}
    for each in series:
        if each.labels.get("GPU_I_ID") or each.labels.get("GPU_I_PROFILE"):
            continue
        key = _card_key(each.labels)
        if not key[1] and key[2] is None:
            continue
        if each.name == DCGM_UTILIZATION and 0 <= each.value <= 100:
            busy[key] = int(each.value)
        elif each.name == DCGM_TEMPERATURE and -273 <= each.value <= 1000:
            warm[key] = int(each.value)
        elif each.name in {DCGM_USED, HAMI_USED} and each.value >= 0:
            mib = each.value if each.name == DCGM_USED else each.value / _BYTES_PER_MIB
            if mib <= MAX_MIB:
                used[key] = Mib(math.ceil(mib))
    return [
        SeenCard(
            node=key[0],
            uuid=key[1],
            index=key[2],
            used=mib,
            utilization_percent=busy.get(key),
            temperature_c=warm.get(key),
        )
        for key, mib in used.items()
    ]


def _card_key(labels: Mapping[str, str]) -> CardKey:
    """Return node, UUID and index of a card, whatever the exporter calls them."""
    node = labels.get("Hostname") or labels.get("node") or labels.get("nodeid") or ""
    uuid = card_of(labels.get("UUID") or labels.get("device_uuid") or labels.get("deviceuuid") or "")
    index = labels.get("gpu") or labels.get("device_index") or ""
    return node, uuid, int(index) if index.isascii() and index.isdecimal() and len(index) < 5 else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
