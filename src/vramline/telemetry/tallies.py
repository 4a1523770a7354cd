"""What happened since the process started, counted as it happens."""

import enum
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

__all__ = ["LOOK_SECONDS", "LOOK_SECONDS_HELP", "Happening", "Tallies"]


class Happening(enum.Enum):
    """Everything that is counted: name, help, labels. Documented in docs/metrics.md."""

    CHECKS = (
        "vramline_realtime_checks_total",
        "Real-time checks of GPUs, by mode and by how they ended.",
        ("mode", "result"),
    )
    CHANGED = (
        "vramline_realtime_decisions_changed_total",
        "Decisions that the books alone would have made differently.",
        ("mode", "how"),
    )
    LOOKS = ("vramline_live_looks_total", "Live looks at GPUs in the moment of binding.", ("result",))
    WAKES = (
        "vramline_wakes_total",
        "Times that kube-scheduler was told to try refused pods again.",
        ("result",),
    )

    RESERVATIONS = ("vramline_reservations_total", "Reservations of memory in advance.", ("result",))
    NOMINATIONS = (
        "vramline_nominations_total",
        "Pods for which kube-scheduler was to be told ahead which node to try first.",
        ("result",),
    )

    @property
    def metric(self) -> str:
        """The name Prometheus knows it by."""
        name: str = self.value[0]
        return name


LOOK_SECONDS = "vramline_live_look_seconds"
LOOK_SECONDS_HELP = "How long live looks took, answered or not."
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1)


class Tallies:
    """Counts of one process."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Happening, tuple[str, ...]]] = Counter()
        self._looks = [0] * (len(_BOUNDS) + 1)
        self._look_sum_s = 0.0

    def count(self, happening: Happening, *labels: str) -> None:
        """Something happened once more."""
        self._counts[happening, labels] += 1

    def of(self, happening: Happening, *labels: str) -> int:
        """Return how often something happened."""
        return self._counts[happening, labels]

    def look_took(self, seconds: float) -> None:
        """A live look ended."""
        self._looks[bisect_left(_BOUNDS, seconds)] += 1
        self._look_sum_s += seconds

    def families(self) -> Iterator[Metric]:
        """Yield every count as Prometheus wants it, those of what never happened too."""
        families = {
            each: CounterMetricFamily(each.metric, each.value[1], labels=each.value[2]) for each in Happening
        }
        for (happening, labels), count in sorted(self._counts.items(), key=lambda each: each[0][1]):
            families[happening].add_metric(list(labels), count)
        yield from families.values()
        yield self._look_family()

    def _look_family(self) -> HistogramMetricFamily:
        buckets, so_far = [], 0
        for bound, count in zip((*map(str, _BOUNDS), "+Inf"), self._looks, strict=True):
            so_far += count
            buckets.append((bound, float(so_far)))
        family = HistogramMetricFamily(LOOK_SECONDS, LOOK_SECONDS_HELP)
        family.add_metric([], buckets=buckets, sum_value=self._look_sum_s)
        return family
