"""The agent's own figures: documented, bounded, and absent where nothing is known."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from vramline.agent.figures import COUNTERS, AgentMetric, Figures, render_figures
from vramline.model.gpu import Health
from vramline.wire.report_v1alpha1 import GpuReport, ReportedGpu

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("metric", AgentMetric, ids=lambda metric: metric.metric)
def test_every_metric_and_label_is_documented(metric: AgentMetric) -> None:
    name = f"{metric.metric}_total" if metric in COUNTERS else metric.metric
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))

    assert all(f"`{label}`" in line for label in metric.value[2])


def samples(figures: Figures) -> dict[tuple[str, str], float]:
    text = render_figures(figures, 100.0).decode()
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_card_shows_what_it_told_and_nothing_else() -> None:
    card = ReportedGpu(uuid="GPU-a", total_mib=9, used_mib=None, reserved_mib=1, health=Health.SUSPECT)
    figures = Figures(report=GpuReport(node="n1", gpus=(card,)), sampled_at=98.5)

    shown = samples(figures)

    assert shown["vramline_agent_gpu_mib", "GPU-a,total"] == 9
    assert ("vramline_agent_gpu_mib", "GPU-a,used") not in shown
    assert shown["vramline_agent_gpu_health", "GPU-a,Suspect"] == 1
    assert shown["vramline_agent_sample_age_seconds", ""] == 1.5


def test_before_the_first_sample_there_is_no_age() -> None:
    assert ("vramline_agent_sample_age_seconds", "") not in samples(Figures())


def test_codes_are_bounded() -> None:
    figures = Figures()
    for number in range(100):
        figures.count_error(f"CODE_{number}")

    shown = [labels for name, labels in samples(figures) if name == "vramline_agent_read_errors_total"]
    assert len(shown) == 33
    assert figures.read_errors["OTHER"] == 68
