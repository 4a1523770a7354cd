"""The agent's own figures, as Prometheus reads them. Labels are bounded: cards, and a short list of codes."""

import enum
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from vramline.wire.report_v1alpha1 import GpuReport

__all__ = ["CONTENT_TYPE", "AgentMetric", "Figures", "render_figures"]

CONTENT_TYPE = CONTENT_TYPE_LATEST

_MOST_CODES = 32
"""Codes that get a label of their own; a library that makes up codes does not make up metrics."""
_OTHER = "OTHER"


class AgentMetric(enum.Enum):
    """Every metric of the agent: name, help, labels. Documented in docs/metrics.md."""

    SAMPLES = ("vramline_agent_samples", "Looks at all cards, by how many answered.", ("outcome",))
    READ_ERRORS = ("vramline_agent_read_errors", "Answers that failed, by code.", ("code",))
    SAMPLE_AGE = ("vramline_agent_sample_age_seconds", "Age of the newest sample.", ())
    SAMPLE_SECONDS = ("vramline_agent_sample_seconds", "How long the last look took.", ())
    GPU_MIB = ("vramline_agent_gpu_mib", "Memory as the card said, in MiB.", ("gpu", "part"))
    GPU_HEALTH = ("vramline_agent_gpu_health", "1 for the state that a card is in.", ("gpu", "health"))
    REPORTS = ("vramline_agent_reports", "Writes of the node's report.", ("outcome",))
    STREAMS = ("vramline_agent_streams", "Replicas of the scheduler that get every sample.", ())
    LOOKS = ("vramline_agent_looks", "Looks on request that were answered.", ())
    STARTS = ("vramline_agent_starts", "Last looks before a container starts, by outcome.", ("outcome",))

    @property
    def metric(self) -> str:
        """The name in the list; a counter is exposed with `_total` after it."""
        name: str = self.value[0]
        return name


COUNTERS = frozenset(
    {
        AgentMetric.SAMPLES,
        AgentMetric.READ_ERRORS,
        AgentMetric.REPORTS,
        AgentMetric.LOOKS,
        AgentMetric.STARTS,
    }
)


@dataclass(slots=True)
class Figures:
    """What is counted while the agent runs."""

    samples: Counter[str] = field(default_factory=Counter)
    read_errors: Counter[str] = field(default_factory=Counter)
    sampled_at: float | None = None
    """When the newest sample was begun."""
    took_s: float = 0.0
    report: GpuReport | None = None
    reports: Counter[str] = field(default_factory=Counter)
    streams: int = 0
    looks: int = 0
    starts: Counter[str] = field(default_factory=Counter)

    def count_error(self, code: str) -> None:
        """Count a failed answer."""
        known = code in self.read_errors or len(self.read_errors) < _MOST_CODES
        self.read_errors[code if known else _OTHER] += 1


def render_figures(figures: Figures, now: float) -> bytes:
    """Return the text that Prometheus scrapes."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Moment(figures, now))
    return generate_latest(registry)


_Row = tuple[AgentMetric, tuple[str, ...], float]


class _Moment(Collector):
    def __init__(self, figures: Figures, now: float) -> None:
        self._figures = figures
        self._now = now

    def collect(self) -> Iterator[Metric]:
        """Yield every metric of the list, those without samples too."""
        families = {
            metric: (CounterMetricFamily if metric in COUNTERS else GaugeMetricFamily)(
                metric.metric, metric.value[1], labels=metric.value[2]
            )
            for metric in AgentMetric
        }
        for metric, labels, value in (*self._own(), *self._cards()):
            families[metric].add_metric(list(labels), value)
        yield from families.values()

    def _own(self) -> Iterator[_Row]:
        figures = self._figures
        for metric, counts in (
            (AgentMetric.SAMPLES, figures.samples),
            (AgentMetric.READ_ERRORS, figures.read_errors),
            (AgentMetric.REPORTS, figures.reports),
            (AgentMetric.STARTS, figures.starts),
        ):
            yield from ((metric, (label,), float(count)) for label, count in counts.items())
        if figures.sampled_at is not None:
            yield AgentMetric.SAMPLE_AGE, (), self._now - figures.sampled_at
            yield AgentMetric.SAMPLE_SECONDS, (), figures.took_s
        yield AgentMetric.STREAMS, (), float(figures.streams)
        yield AgentMetric.LOOKS, (), float(figures.looks)

    def _cards(self) -> Iterator[_Row]:
        report = self._figures.report
        for gpu in (report.gpus if report is not None else None) or ():
            uuid = gpu.uuid or ""
            for part, amount in (
                ("total", gpu.total_mib),
                ("reserved", gpu.reserved_mib),
                ("used", gpu.used_mib),
            ):
                if amount is not None:
                    yield AgentMetric.GPU_MIB, (uuid, part), float(amount)
            if gpu.health is not None:
                yield AgentMetric.GPU_HEALTH, (uuid, gpu.health), 1.0
