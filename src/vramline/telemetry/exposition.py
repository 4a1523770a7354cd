"""How a moment's figures, and what was counted until then, become what Prometheus reads."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString

from vramline.telemetry.metrics import ONE_BY_ONE, Gauge, HamiGauge, Sample
from vramline.telemetry.tallies import Duration, Happening, Tallies

__all__ = ["render_metrics", "write_metrics"]

_PIECE = 1_000
"""Lines that are written before others have their turn."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def render_metrics(samples: Iterable[Sample], tallies: Tallies | None = None) -> bytes:
    """Return the text that Prometheus scrapes: this moment's figures, and what was counted until now."""
    return b"".join(write_metrics(samples, tallies))


def write_metrics(samples: Iterable[Sample], tallies: Tallies | None = None) -> Iterator[bytes]:
    """Yield the same text in pieces, each made when it is asked for.

    Samples of `GPU_MIB`, of `OBSERVATION_AGE` and of `POD_MIB` come together; of others in any order.
    """
    others: list[Sample] = []
    written: set[Gauge | HamiGauge] = set()
    for gauge, group in groupby(samples, key=attrgetter("gauge")):
        if gauge in ONE_BY_ONE:
            yield from _write_one_by_one(gauge, group)
            written.add(gauge)
        else:
            others.extend(group)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Moment(others, written, tallies or Tallies()))
    yield generate_latest(registry)


def _write_one_by_one(gauge: Gauge, samples: Iterable[Sample]) -> Iterator[bytes]:
    """Write what `generate_latest` would, without an object for every label of every line."""
    name, told, labels = gauge.value
    order = sorted(range(len(labels)), key=labels.__getitem__)
    inside = ",".join(f'{labels[place]}="{{{place}}}"' for place in order)
    form = (name + "{{" + inside + "}} ").format
    lines = [f"# HELP {name} {told}\n# TYPE {name} gauge\n"]
    quotes = 2 * len(labels)
    for sample in samples:
        text = form(*sample.labels)
        if text.count('"') != quotes or "\\" in text or "\n" in text:
            text = form(*(each.translate(_ESCAPES) for each in sample.labels))
        lines.append(f"{text}{_figure(sample.value)}\n")
        if len(lines) == _PIECE:
            yield "".join(lines).encode()
            lines.clear()
    yield "".join(lines).encode()


def _figure(value: float) -> str:
    """Return a number as Go writes it; most are small and whole."""
    if isinstance(value, int) and -1_000_000 < value < 1_000_000:
        return f"{value:d}.0"
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


def _family(gauge: Gauge | HamiGauge) -> CounterMetricFamily | GaugeMetricFamily:
    """Return an empty family; what ends in `_total` only ever grows while a process lives."""
    kind = CounterMetricFamily if gauge.metric.endswith("_total") else GaugeMetricFamily
    return kind(gauge.metric, gauge.value[1], labels=gauge.value[2])


class _Moment(Collector):
    """The samples of one scrape, as a registry wants them."""

    def __init__(self, samples: Iterable[Sample], written: set[Gauge | HamiGauge], tallies: Tallies) -> None:
        self._samples = samples
        self._written = written
        self._tallies = tallies

    def collect(self) -> Iterator[Metric]:
        """Yield every metric of our own list that is not written yet; of others' only what has samples."""
        families: dict[Gauge | HamiGauge, CounterMetricFamily | GaugeMetricFamily] = {}
        families |= {gauge: _family(gauge) for gauge in Gauge if gauge not in self._written}
        for sample in self._samples:
            if sample.gauge not in families:
                families[sample.gauge] = _family(sample.gauge)
            families[sample.gauge].add_metric(list(sample.labels), sample.value)
        yield from families.values()
        yield from _families_of(self._tallies)


def _families_of(tallies: Tallies) -> Iterator[Metric]:
    """Yield every count as Prometheus wants it, those of what never happened too."""
    counted = {
        each: CounterMetricFamily(each.metric, each.value[1], labels=each.value[2]) for each in Happening
    }
    for happening, labels, count in tallies.counted():
        counted[happening].add_metric(list(labels), count)
    yield from counted.values()
    timed = {
        each: HistogramMetricFamily(each.metric, each.value[1], labels=each.value[2]) for each in Duration
    }
    for duration, labels, buckets, total_s in tallies.timed():
        timed[duration].add_metric(list(labels), buckets=buckets, sum_value=total_s)
    yield from timed.values()
