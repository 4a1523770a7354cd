"""The one list of metrics: documented, and rendered as Prometheus reads it."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from vramline.telemetry.metrics import Gauge, Sample, render_metrics

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("gauge", Gauge, ids=lambda gauge: gauge.metric)
def test_every_metric_and_label_is_documented(gauge: Gauge) -> None:
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| `{gauge.metric}` |"))

    assert all(f"`{label}`" in line for label in gauge.value[2])


def test_samples_come_out_with_their_labels_and_metrics_without_samples_too() -> None:
    text = render_metrics([Sample(Gauge.GPU_MIB, 500, ("n1", 'GPU-"x"', "free"))]).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}

    assert set(families) == {gauge.metric.removesuffix("_total") for gauge in Gauge}
    assert [(s.labels, s.value) for s in families["vramline_gpu_mib"].samples] == [
        ({"node": "n1", "gpu": 'GPU-"x"', "part": "free"}, 500.0)
    ]
    assert families["vramline_nodes"].samples == []
