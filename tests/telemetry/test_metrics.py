"""The one list of metrics: documented, and rendered as Prometheus reads it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from vramline.telemetry.exposition import render_metrics, write_metrics
from vramline.telemetry.metrics import CONTENT_TYPE, Gauge, HamiGauge, Sample
from vramline.telemetry.tallies import Duration, Happening, Tallies

LOOK = Duration.LOOK.metric
PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("gauge", [*Gauge, *Happening, *Duration, *HamiGauge], ids=lambda gauge: gauge.metric)
def test_every_metric_and_label_is_documented(gauge: Gauge | Happening | Duration | HamiGauge) -> None:
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| `{gauge.metric}` |"))

    assert all(f"`{label}`" in line for label in gauge.value[2])


def test_samples_come_out_with_their_labels_and_metrics_without_samples_too() -> None:
    text = render_metrics([Sample(Gauge.GPU_MIB, 500, ("n1", 'GPU-"x"', "free"))]).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}

    counted = {each.metric.removesuffix("_total") for each in (*Gauge, *Happening)}
    assert set(families) == counted | {each.metric for each in Duration}
    assert [(s.labels, s.value) for s in families["vramline_gpu_mib"].samples] == [
        ({"node": "n1", "gpu": 'GPU-"x"', "part": "free"}, 500.0)
    ]
    assert families["vramline_nodes"].samples == []


class OneFamily:
    def __init__(self, family: GaugeMetricFamily) -> None:
        self._family = family

    def collect(self) -> list[GaugeMetricFamily]:
        return [self._family]


@pytest.mark.parametrize("gauge", [Gauge.GPU_MIB, Gauge.OBSERVATION_AGE, Gauge.POD_MIB])
def test_what_is_written_line_by_line_reads_as_the_library_writes_it(gauge: Gauge) -> None:
    family = GaugeMetricFamily(gauge.metric, gauge.value[1], labels=gauge.value[2])
    values = (0, -5, 999_999, 1_000_000, 143_771, 2**40, 0.125, 12_345_678.5, 1e-9)
    samples = [
        Sample(gauge, value, tuple(f'{text}{place}"\\\n' for place in range(len(gauge.value[2]))))
        for value in values
        for text in ("plain", "ü{}", "")
    ] + [Sample(gauge, value, ("a", "b", "c", "d")[: len(gauge.value[2])]) for value in values]
    for sample in samples:
        family.add_metric(list(sample.labels), sample.value)

    assert render_metrics(samples).startswith(generate_latest(OneFamily(family)))


def test_a_large_cluster_is_written_in_pieces_that_are_made_when_they_are_wanted() -> None:
    made = []

    def samples() -> Iterator[Sample]:
        for number in range(5_000):
            made.append(number)
            yield Sample(Gauge.GPU_MIB, number, ("n1", f"GPU-{number}", "free"))

    pieces = write_metrics(samples())
    first = next(pieces)

    assert len(made) < 2_000
    text = (first + b"".join(pieces)).decode()
    assert sum(line.startswith("vramline_gpu_mib{") for line in text.splitlines()) == 5_000
    assert text.count("# TYPE vramline_gpu_mib gauge") == 1


def test_what_happened_is_counted() -> None:
    tallies = Tallies()
    for _ in range(2):
        tallies.count(Happening.CHECKS, "strict", "passed")
    tallies.took(Duration.LOOK, 0.004)
    tallies.took(Duration.LOOK, 7.0)
    text = render_metrics([], tallies).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}

    checks = families["vramline_realtime_checks"].samples
    assert [(s.labels, s.value) for s in checks] == [({"mode": "strict", "result": "passed"}, 2.0)]
    looks = {(s.name, s.labels.get("le")): s.value for s in families[LOOK].samples}
    assert looks[f"{LOOK}_bucket", "0.0025"] == 0.0
    assert looks[f"{LOOK}_bucket", "0.005"] == 1.0
    assert looks[f"{LOOK}_count", None] == 2.0
    assert looks[f"{LOOK}_sum", None] == pytest.approx(7.004)


def test_times_are_kept_apart_by_label() -> None:
    tallies = Tallies()
    tallies.took(Duration.VERB, 0.002, "filter")
    tallies.took(Duration.VERB, 0.004, "bind")
    tallies.took(Duration.VERB, 99.0, "bind")
    text = render_metrics([], tallies).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}

    counts = {
        s.labels["verb"]: s.value for s in families["vramline_verb_seconds"].samples if "count" in s.name
    }
    assert counts == {"filter": 1.0, "bind": 2.0}


def test_what_is_written_is_named_as_the_library_names_it() -> None:
    assert CONTENT_TYPE == CONTENT_TYPE_LATEST
