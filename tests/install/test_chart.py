"""The Helm chart: well formed, strict about its values, and the same as `vramline install`."""

import json
import subprocess

import pytest
import yaml

from install.rendered import CHART, Object, find_helm, render_with_helm, rendered
from vramline import __version__
from vramline.kube.client import Timing
from vramline.model.ask import PolicyName, RealtimeMode
from vramline.settings import SETTINGS, Adoption, HamiMetrics, NominateAhead, Preemption, Settings
from vramline.settings.schema import LogFormat, LogLevel, StaleObservation, UnsizedAsk
from vramline.settings.values import duration
from vramline.wire.admission import SchedulerNamePolicy


def by_name(objects: list[Object]) -> dict[tuple[str, str, str], Object]:
    found = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in objects
    }
    assert len(found) == len(objects), "two objects of one name"
    return found


def test_helm_finds_nothing_to_complain_about() -> None:
    answer = subprocess.run(
        [find_helm(), "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False
    )

    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "[WARNING]" not in answer.stdout


@pytest.mark.parametrize(
    ("options", "values"),
    [
        pytest.param(("--without-namespace",), (), id="by default, where helm makes the namespace"),
        pytest.param((), ("createNamespace=true",), id="with the namespace"),
        pytest.param(
            ("--without-namespace", "--with-agent", "--namespace", "gpu"),
            ("agent.enabled=true",),
            id="with the agent, elsewhere",
        ),
        pytest.param(
            ("--without-namespace", "--with-dashboard"),
            ("dashboard.enabled=true",),
            id="with the dashboard",
        ),
        pytest.param(
            ("--without-namespace", "--with-plugin"),
            ("agent.enabled=true", "devicePlugin.enabled=true"),
            id="with the device plugin",
        ),
        pytest.param(
            (
                *("--without-namespace", "--image", "registry.example/v:2", "--replicas", "3"),
                *("--kube-scheduler-image", "registry.example/ks", "--kube-scheduler-version", "v1.31.0"),
                *("--scheduler-name", "vram", "--realtime", "warning", "--policy", "spread"),
                *("--margin", "512Mi", "--exclude-namespace", "monitoring"),
            ),
            (
                *("image=registry.example/v:2", "scheduler.replicas=3", "schedulerName=vram"),
                *("kubeScheduler.repository=registry.example/ks", "kubeScheduler.version=v1.31.0"),
                *("settings.realtimeMode=warning", "settings.policy=spread", "settings.margin=512Mi"),
                "excludedNamespaces={kube-system,gpu-operator,nvidia-gpu-operator,kai-resource-reservation,monitoring}",
            ),
            id="with every choice",
        ),
    ],
)
def test_helm_renders_what_vramline_install_prints(options: tuple[str, ...], values: tuple[str, ...]) -> None:
    namespace = options[options.index("--namespace") + 1] if "--namespace" in options else "vramline-system"

    by_helm = render_with_helm(*(f"--set={value}" for value in values), namespace=namespace)

    assert by_name(by_helm) == by_name(rendered(*options))


def test_the_version_is_the_programs() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    assert values["image"] == f"vramline:{__version__}"


@pytest.mark.parametrize(
    "value",
    [
        "replicas=2",
        "scheduler.replicas=0",
        "scheduler.replicas=two",
        "schedulerName=default-scheduler",
        "schedulerName=No",
        "image=",
        "imagePullPolicy=Sometimes",
        "imagePullSecrets={plain}",
        "settings.realtimeMode=lax",
        "settings.policy=luck",
        "settings.margin=-1",
        "settings.margin=lots",
        "settings.listen=0.0.0.0:8780",
        "settings.unknown=1",
        "kubeScheduler.version=1.35",
        "kubeScheduler.qps=0",
        "kubeScheduler.extenderTimeout=soon",
        "networkPolicy.apiServerPorts={0}",
        "agent.enabled=perhaps",
        "devicePlugin.enabled=true",
        "devicePlugin.slotsPerCard=0",
        "agent.privileged=true",
        "excludedNamespaces={a_b}",
        "excludedNamespaces=[]",
    ],
)
def test_a_wrong_value_is_refused(value: str) -> None:
    answer = subprocess.run(
        [find_helm(), "template", "vramline", str(CHART), f"--set={value}"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert answer.returncode != 0
    assert "values don't meet the specifications of the schema" in answer.stderr


def test_the_schema_knows_every_setting_and_every_word() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    settings = schema["properties"]["settings"]["properties"]

    words = {name: set(form["enum"]) for name, form in settings.items() if "enum" in form}
    listeners = {
        "listen",
        "webhookListen",
        "agentListen",
        "metricsListen",
        "schedulerMetricsListen",
        "dashboardListen",
    }
    given_by_the_chart = {*listeners, "schedulerName", "backend", "slotsPerCard", "historyPath"}
    given_by_the_chart |= {"reservationImage", "reservationNamespace", "hamiNodeLock"}
    assert set(settings) == {setting.name for setting in SETTINGS} - given_by_the_chart
    assert words == {
        "realtimeMode": set(RealtimeMode),
        "staleObservation": set(StaleObservation),
        "unsizedAsk": set(UnsizedAsk),
        "adoption": set(Adoption),
        "policy": set(PolicyName),
        "preemption": {*Preemption, True, False},
        "nominateAhead": {*NominateAhead, False},
        "hamiMetrics": {*HamiMetrics, True, False},
        "schedulerNamePolicy": set(SchedulerNamePolicy),
        "logLevel": set(LogLevel),
        "logFormat": set(LogFormat),
    }


def test_kube_scheduler_waits_longer_than_a_bind_may_take() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    waits_s = duration(may_be_zero=False)(values["kubeScheduler"]["extenderTimeout"])
    assert waits_s > Settings().bind_within_s + Timing().write_s


def test_the_schema_knows_every_value_of_the_chart() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    known = {
        (name, inner)
        for name, form in schema["properties"].items()
        for inner in form.get("properties", {"": None})
        if name not in {"global", "settings"}
    }
    given = {
        (name, inner)
        for name, value in values.items()
        for inner in (value if isinstance(value, dict) else {"": None})
        if name != "settings"
    }
    assert known == given
