"""The alert rules as they are shipped: they load, and fire when their time has come, not before."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from house.tree import ROOT
from monitoring.lists import METRICS, metrics_in
from monitoring.prometheus import ALERTS, find_tool

RULES = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")

SERIES = """
rule_files: [alerts.yaml]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - {series: 'vramline_gpu_mib{node="n1", gpu="GPU-a", part="ghost"}', values: '0 8000x10'}
  - {series: 'vramline_gpu_mib{node="n1", gpu="GPU-b", part="drift"}', values: '1024x3 1025x10'}
  - {series: 'vramline_leading{instance="a"}', values: '1x20'}
  - {series: 'vramline_leading{instance="b"}', values: '0x20'}
  alert_rule_test:
  - {eval_time: 5m, alertname: VramlineGhostMemory, exp_alerts: []}
  - eval_time: 7m
    alertname: VramlineGhostMemory
    exp_alerts:
    - exp_labels: {severity: warning, node: n1, gpu: GPU-a}
      exp_annotations:
        summary: "GPU-a of n1: processes of pods that ended hold 8000 MiB"
        action: "`vramline gpus` names pod and process; end it, or reset the card"
  - {eval_time: 8m, alertname: VramlineDrift, exp_alerts: []}
  - eval_time: 10m
    alertname: VramlineDrift
    exp_alerts:
    - exp_labels: {severity: warning, node: n1, gpu: GPU-b}
      exp_annotations:
        summary: "GPU-b of n1: the books would promise 1025 MiB more than the card has"
        action: "`vramline gpus` says who uses what nobody claimed"
  - {eval_time: 10m, alertname: VramlineLeaderMissing, exp_alerts: []}
"""


def test_prometheus_own_tool_finds_nothing_wrong() -> None:
    answer = subprocess.run(
        [find_tool("promtool"), "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False
    )

    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_a_ghost_and_drift_are_told_after_five_minutes_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_bytes(ALERTS.read_bytes())
    (tmp_path / "tests.yaml").write_text(SERIES)

    answer = subprocess.run(
        [find_tool("promtool"), "test", "rules", "tests.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_uses_our_metrics_says_what_to_do_and_is_in_the_manual(rule: dict[str, object]) -> None:
    annotations = rule["annotations"]

    assert metrics_in(str(rule["expr"])) <= METRICS
    assert isinstance(annotations, dict)
    assert set(annotations) == {"summary", "action"}
    assert re.search(rf"`{rule['alert']}`", PAGE)
