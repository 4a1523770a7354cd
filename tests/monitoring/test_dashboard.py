"""The Grafana dashboard: whole, and about metrics that exist."""

import json
from typing import Any

import pytest
import yaml

from install.rendered import CHART, find_object, render_with_helm
from monitoring.lists import METRICS, metrics_in
from monitoring.prometheus import ALERTS, DASHBOARD
from vramline.wire.install_manifests import render_manifests

BOARD = json.loads(DASHBOARD.read_text(encoding="utf-8"))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_asks_for_metrics_that_exist(panel: dict[str, Any]) -> None:
    assert panel["targets"]
    for target in panel["targets"]:
        assert metrics_in(target["expr"])
        assert metrics_in(target["expr"]) <= METRICS
        assert target["datasource"]["uid"] == "${datasource}"


def test_panels_have_numbers_of_their_own_and_lie_beside_each_other() -> None:
    numbers = [panel["id"] for panel in BOARD["panels"]]
    places: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & places, panel["title"]
        assert at["x"] + at["w"] <= 24
        places |= cells

    assert len(set(numbers)) == len(numbers)


def test_variables_are_the_ones_that_panels_use() -> None:
    known = {variable["name"] for variable in BOARD["templating"]["list"]}

    assert known == {"datasource", "node", "namespace"}


def test_the_chart_installs_what_is_shipped_whoever_renders_it() -> None:
    chosen = (
        "monitoring.enabled=true",
        "monitoring.prometheusOperator=true",
        "monitoring.grafanaDashboard=true",
    )
    by_helm = render_with_helm(*(f"--set={value}" for value in chosen))
    files = {
        str(path.relative_to(CHART)): path.read_text(encoding="utf-8")
        for path in CHART.rglob("*")
        if path.is_file()
    }
    values = yaml.safe_load(files["values.yaml"])
    values["monitoring"] = dict.fromkeys(values["monitoring"], True)
    texts = render_manifests(files, values, namespace="vramline-system", version="0.1.0")
    own = [yaml.safe_load(text) for text in texts]

    for objects in (by_helm, own):
        rule = find_object(objects, "PrometheusRule", "vramline")
        assert rule["spec"] == yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
        board = find_object(objects, "ConfigMap", "vramline-dashboard")
        assert json.loads(board["data"]["vramline.json"]) == BOARD
        service = find_object(objects, "Service", "vramline-metrics")
        deployment = find_object(objects, "Deployment", "vramline-scheduler")
        pod = deployment["spec"]["template"]["spec"]
        ports = {port["name"]: port["containerPort"] for each in pod["containers"] for port in each["ports"]}
        assert ports[service["spec"]["ports"][0]["targetPort"]] == 8782
