"""The one list of metrics, and how a moment's figures become what Prometheus reads.

Figures are counted when somebody asks, from the state itself: a gauge here cannot drift from the truth.
"""

import enum
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString

from vramline.telemetry.tallies import Tallies

__all__ = ["CONTENT_TYPE", "Gauge", "HamiGauge", "Sample", "render_metrics", "write_metrics"]

CONTENT_TYPE = CONTENT_TYPE_LATEST

_PIECE = 1_000
"""Lines that are written before others have their turn."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

_DEVICE = ("zone", "node", "device_uuid", "device_index", "device_type")
_POD = ("zone", "namespace", "node", "pod", "container_index", "device_uuid")


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
    DECISIONS = (
        "vramline_decisions_total",
        "Decisions by what they meant for the pod, and why it has to wait.",
        ("outcome", "reason"),
    )
    PENDING = ("vramline_pending_pods", "Pods that wait for GPUs, by why they do.", ("reason",))
    PENDING_OLDEST = (
        "vramline_pending_oldest_seconds",
        "For how long the oldest of the pods that wait for GPUs has waited.",
        (),
    )
    API_WRITES = (
        "vramline_api_writes_total",
        "Writes to the API server, by how they ended.",
        ("method", "resource", "outcome"),
    )
    VRAM_GIB_SECONDS = (
        "vramline_vram_gib_seconds_total",
        "GPU memory times time, by namespace and by what it was.",
        ("namespace", "part"),
    )
    HISTORY_LOST = ("vramline_history_lost_total", "What history should have kept and could not.", ())
    LEADING = ("vramline_leading", "1 while this replica may bind pods.", ())

    @property
    def metric(self) -> str:
        """The name Prometheus knows it by."""
        name: str = self.value[0]
        return name


class HamiGauge(enum.Enum):
    """Metrics under the names of HAMi 2.10, for dashboards that were made for it. Off unless wanted."""

    MEMORY_LIMIT = ("hami_gpu_memory_limit_bytes", "Memory of a GPU.", _DEVICE)
    CORE_LIMIT = ("hami_gpu_core_limit_ratio", "Compute of a GPU that may be promised, in percent.", _DEVICE)
    MEMORY_ALLOCATED = (
        "hami_gpu_memory_allocated_bytes",
        "Memory of a GPU that is claimed.",
        ("zone", "node", "device_uuid", "device_index", "device_cores", "device_type"),
    )
    SHARED_COUNT = ("hami_gpu_shared_count", "Pods that share a GPU.", _DEVICE)
    CORE_ALLOCATED = (
        "hami_gpu_core_allocated_ratio",
        "Compute of a GPU that is claimed, in percent.",
        _DEVICE,
    )
    OVERVIEW = (
        "hami_node_gpu_overview",
        "Memory of a GPU that is claimed, with what it has as labels.",
        ("zone", "node", "device_uuid", "device_index", "device_cores", "device_memory_limit", "device_type"),
    )
    MEMORY_RATIO = (
        "hami_node_gpu_memory_allocated_ratio",
        "Part of a GPU's memory that is claimed, from 0 to 1.",
        ("zone", "node", "device_uuid", "device_index"),
    )
    POD_MEMORY = ("hami_vgpu_memory_allocated_bytes", "Memory that a pod claimed on a GPU.", _POD)
    POD_CORES = ("hami_vgpu_core_allocated_ratio", "Compute that a pod claimed on a GPU, in percent.", _POD)
    HOST_MEMORY = ("hami_host_gpu_memory_used_bytes", "Memory of a GPU that was seen in use.", _DEVICE)
    HOST_UTILIZATION = ("hami_host_gpu_utilization_ratio", "How busy a GPU was seen, in percent.", _DEVICE)

    @property
    def metric(self) -> str:
        """The name Prometheus knows it by."""
        name: str = self.value[0]
        return name


class Sample(msgspec.Struct, frozen=True):
    """One figure: of which metric, with which label values."""

    gauge: Gauge | HamiGauge
    value: float
    labels: tuple[str, ...] = ()


_ONE_BY_ONE = frozenset({Gauge.GPU_MIB, Gauge.OBSERVATION_AGE, Gauge.POD_MIB})
"""A large cluster has hundreds of thousands of samples of these: they are written as they come."""


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
        if gauge in _ONE_BY_ONE:
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
        yield from self._tallies.families()
