"""The one list of metrics, and how a moment's figures become what Prometheus reads.

Figures are counted when somebody asks, from the state itself: a gauge here cannot drift from the truth.
"""

import enum
from collections.abc import Iterable, Iterator

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from vramline.telemetry.tallies import Tallies

__all__ = ["CONTENT_TYPE", "Gauge", "Sample", "render_metrics"]

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Gauge(enum.Enum):
    """Every metric: name, help, labels. Documented in docs/metrics.md."""

    NODES = ("vramline_nodes", "Nodes by what their GPUs may be used for.", ("state",))
    GPU_MIB = (
        "vramline_gpu_mib",
        "Memory of one physical GPU, in MiB, by what it is.",
        ("node", "gpu", "part"),
    )
    OBSERVATION_AGE = (
        "vramline_observation_age_seconds",
        "Age of the newest look at a GPU; absent where nobody looked.",
        ("node", "gpu"),
    )
    OBSERVED_GPUS = (
        "vramline_observed_gpus",
        "GPUs by who looked at them last, and whether that still counts.",
        ("source", "state"),
    )
    POD_MIB = (
        "vramline_pod_mib",
        "Memory of one pod on one GPU, in MiB: what it claimed, and what it was seen to use.",
        ("namespace", "pod", "gpu", "part"),
    )
    PODS_NOT_SHOWN = ("vramline_pods_not_shown", "Pods that vramline_pod_mib leaves out; it has a limit.", ())
    CLAIMS = ("vramline_claims", "Claims in the books, by state.", ("state",))
    PODS = ("vramline_pods", "Pods that ask for GPUs, by phase.", ("phase",))
    DISAGREEMENTS = (
        "vramline_ledger_disagreements",
        "Live pods with an allocation of ours that no ledger confirms. Anything but 0 is a fault.",
        (),
    )
    PREEMPTORS = (
        "vramline_preemptors",
        "Pods that wait for the memory of others who were sent away for them.",
        (),
    )
    EVICTIONS = ("vramline_evictions_total", "Pods sent away by this replica where VRAM alone was short.", ())
    LEADING = ("vramline_leading", "1 while this replica may bind pods.", ())

    @property
    def metric(self) -> str:
        """The name Prometheus knows it by."""
        name: str = self.value[0]
        return name


class Sample(msgspec.Struct, frozen=True):
    """One figure: of which metric, with which label values."""

    gauge: Gauge
    value: float
    labels: tuple[str, ...] = ()


def render_metrics(samples: Iterable[Sample], tallies: Tallies | None = None) -> bytes:
    """Return the text that Prometheus scrapes: this moment's figures, and what was counted until now."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Moment(samples, tallies or Tallies()))
    return generate_latest(registry)


def _family(gauge: Gauge) -> CounterMetricFamily | GaugeMetricFamily:
    """Return an empty family; what ends in `_total` only ever grows while a process lives."""
    kind = CounterMetricFamily if gauge.metric.endswith("_total") else GaugeMetricFamily
    return kind(gauge.metric, gauge.value[1], labels=gauge.value[2])


class _Moment(Collector):
    """The samples of one scrape, as a registry wants them."""

    def __init__(self, samples: Iterable[Sample], tallies: Tallies) -> None:
        self._samples = samples
        self._tallies = tallies

    def collect(self) -> Iterator[Metric]:
        """Yield every metric of the list, those without samples too."""
        families = {gauge: _family(gauge) for gauge in Gauge}
        for sample in self._samples:
            families[sample.gauge].add_metric(list(sample.labels), sample.value)
        yield from families.values()
        yield from self._tallies.families()
