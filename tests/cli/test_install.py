"""`vramline install`."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from vramline.cli.main import main


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> "Printed":
    return Printed(capsys)


class Printed:
    """Runs the command and returns what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *options: str) -> str:
        assert main(["install", *options]) == 0
        return self.capsys.readouterr().out

    def objects(self, *options: str) -> dict[tuple[str, str], dict[str, Any]]:
        return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(self(*options))}


def test_json_holds_the_same_objects_as_yaml(printed: Printed) -> None:
    listed = json.loads(printed("-o", "json"))

    assert listed["kind"] == "List"
    assert listed["items"] == list(yaml.safe_load_all(printed()))


def test_the_table_names_every_object(printed: Printed) -> None:
    lines = printed("-o", "table").splitlines()

    assert lines[0].split() == ["KIND", "NAMESPACE", "NAME"]
    assert len(lines) == 1 + len(list(yaml.safe_load_all(printed())))


def test_choices_reach_the_objects(printed: Printed) -> None:
    objects = printed.objects(
        *("--namespace", "gpu", "--image", "registry.example/v@sha256:0a", "--replicas", "3"),
        *("--kube-scheduler-image", "registry.example/ks", "--kube-scheduler-version", "v1.33.4"),
        *("--scheduler-name", "vram", "--realtime", "warning", "--policy", "spread", "--margin", "1Gi"),
    )

    spec = objects["Deployment", "vramline-scheduler"]["spec"]
    containers = spec["template"]["spec"]["containers"]
    settings = yaml.safe_load(objects["ConfigMap", "vramline-scheduler"]["data"]["vramline.yaml"])
    kube = yaml.safe_load(objects["ConfigMap", "vramline-kube-scheduler"]["data"]["kube-scheduler.yaml"])
    assert spec["replicas"] == 3
    assert [c["image"] for c in containers] == ["registry.example/ks:v1.33.4", "registry.example/v@sha256:0a"]
    assert settings == {"realtimeMode": "warning", "policy": "spread", "margin": "1Gi"}
    assert kube["profiles"][0]["schedulerName"] == "vram"
    assert kube["leaderElection"]["resourceNamespace"] == "gpu"


def test_no_object_is_left_in_another_namespace(printed: Printed) -> None:
    text = printed("--namespace", "gpu")

    assert "vramline-system" not in text
    assert ("Namespace", "gpu") in printed.objects("--namespace", "gpu")


@pytest.mark.parametrize(
    ("option", "kind", "is_there"),
    [
        ("--without-namespace", ("Namespace", "vramline-system"), False),
        ("--with-namespace", ("Namespace", "vramline-system"), True),
        ("--with-agent", ("DaemonSet", "vramline-agent"), True),
        ("--without-agent", ("DaemonSet", "vramline-agent"), False),
        ("--with-plugin", ("DaemonSet", "vramline-agent"), True),
        ("--without-plugin", ("DaemonSet", "vramline-agent"), False),
    ],
)
def test_parts_can_be_left_out(option: str, kind: tuple[str, str], is_there: bool, printed: Printed) -> None:
    assert (kind in printed.objects(option)) is is_there


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--namespace", "Gpu"), "command line: --namespace = 'Gpu': is no name that Kubernetes takes"),
        (("--realtime", "lax"), "command line: --realtime = 'lax': is none of the accepted words"),
        (("--margin", "lots"), "command line: --margin = 'lots'"),
        (("--replicas", "0"), "Invalid value for '--replicas'"),
        (("--scheduler-name", "default-scheduler"), "is the cluster's own scheduler"),
        (("--with-plugin", "--without-agent"), "the plugin is part of the agent"),
        (("--output", "xml"), "Invalid value for '--output'"),
    ],
)
def test_a_wrong_choice_prints_nothing_but_the_mistake(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install", *options]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_the_chart_is_written_into_a_new_folder(tmp_path: Path, printed: Printed) -> None:
    folder = tmp_path / "charts" / "vramline"

    assert printed("--chart", str(folder)) == ""

    assert yaml.safe_load((folder / "Chart.yaml").read_text())["name"] == "vramline"
    assert list((folder / "templates").glob("*.yaml"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "is there already"),
        (("--replicas", "3"), "--chart alone"),
    ],
    ids=["a folder that exists", "choices, which helm takes"],
)
def test_the_chart_is_not_written(
    options: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install", "--chart", str(tmp_path), *options]) == 2

    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
