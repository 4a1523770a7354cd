"""What happened since the process started, counted as it happens."""

import enum
from bisect import bisect_left
from collections import Counter
from itertools import accumulate

__all__ = ["Duration", "Happening", "Tallies"]


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
    HELD = (
        "vramline_filters_held_total",
        "Filters that were answered later, while pods behind were told their nodes.",
        ("result",),
    )

    @property
    def metric(self) -> str:
        """The name Prometheus knows it by."""
        name: str = self.value[0]
        return name


class Duration(enum.Enum):
    """Everything that is timed: name, help, labels, bounds of the buckets in seconds."""

    LOOK = (
        "vramline_live_look_seconds",
        "How long live looks took, answered or not.",
        (),
        (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1),
    )
    VERB = (
        "vramline_verb_seconds",
        "How long Vramline took for a call of kube-scheduler or of the API server.",
        ("verb",),
        (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
    )

    @property
    def metric(self) -> str:
        """The name Prometheus knows it by."""
        name: str = self.value[0]
        return name

    @property
    def bounds(self) -> tuple[float, ...]:
        """Upper bounds of all buckets but the last, which has none."""
        bounds: tuple[float, ...] = self.value[3]
        return bounds


class _Buckets:
    """The times of one thing."""

    __slots__ = ("counts", "total_s")

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.total_s = 0.0


class Tallies:
    """Counts and times of one process."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Happening, tuple[str, ...]]] = Counter()
        self._times: dict[tuple[Duration, tuple[str, ...]], _Buckets] = {}
        self.took(Duration.LOOK)  # a histogram without labels is there from the start

    def count(self, happening: Happening, *labels: str) -> None:
        """Something happened once more."""
        self._counts[happening, labels] += 1

    def of(self, happening: Happening, *labels: str) -> int:
        """Return how often something happened."""
        return self._counts[happening, labels]

    def took(self, duration: Duration, seconds: float | None = None, *labels: str) -> None:
        """Something ended that is timed; None: it is only to be there, with nothing in it."""
        times = self._times.get((duration, labels))
        if times is None:
            times = self._times[duration, labels] = _Buckets(len(duration.bounds) + 1)
        if seconds is not None:
            times.counts[bisect_left(duration.bounds, seconds)] += 1
            times.total_s += seconds

    def counted(self) -> list[tuple[Happening, tuple[str, ...], int]]:
        """Return what happened, with its labels and how often, in the order of the labels."""
        counts = sorted(self._counts.items(), key=lambda each: each[0][1])
        return [(happening, labels, count) for (happening, labels), count in counts]

    def timed(self) -> list[tuple[Duration, tuple[str, ...], list[tuple[str, float]], float]]:
        """Return what was timed, with its labels, cumulated buckets by upper bound, and the sum of times."""
        times = sorted(self._times.items(), key=lambda each: each[0][1])
        return [(what, labels, _cumulated(what, told), told.total_s) for (what, labels), told in times]


def _cumulated(duration: Duration, times: _Buckets) -> list[tuple[str, float]]:
    bounds = (*map(str, duration.bounds), "+Inf")
    return list(zip(bounds, map(float, accumulate(times.counts)), strict=True))
