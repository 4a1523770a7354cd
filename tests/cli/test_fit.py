"""`vramline fit` as people call it."""

import json
from pathlib import Path

import pytest

from inference.models import LLAMA_8B
from vramline.cli.main import main

_CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: n1, annotations: {vramline.io/gpus-physical: "2x24576"}}
status: {allocatable: {nvidia.com/gpu: "2"}}
---
apiVersion: v1
kind: Pod
metadata: {name: waits, namespace: a, annotations: {gpu-memory: "15000"}}
spec: {containers: [{name: c}]}
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA_8B), encoding="utf-8")
    return str(file)


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    file = tmp_path / "cluster.yaml"
    file.write_text(_CLUSTER, encoding="utf-8")
    return str(file)


def test_a_model_that_fits_is_told_where(
    config: str, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pod that waits in the input gets its card first."""
    status = main(["fit", config, "-f", cluster, "--ctx", "8192", "--concurrency", "4"])

    shown = capsys.readouterr().out
    assert status == 0
    assert "n1: n1/gpu-1" in shown
    assert "NotEnoughGpus" in shown


def test_a_model_that_fits_nowhere_is_status_1_with_what_would_help(
    config: str, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["fit", config, "-f", cluster, "--ctx", "32768", "--concurrency", "4", "--tp", "1"])

    shown = capsys.readouterr().out
    assert status == 1
    assert "→ fits on n1 if context 32,768 → " in shown


def test_json_has_every_way(config: str, cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["fit", config, "-f", cluster, "--ctx", "8192", "-o", "json"])

    report = json.loads(capsys.readouterr().out)
    assert report["fits"]
    assert [way["tp"] for way in report["ways"]] == [1, 2]
    assert report["ways"][0]["need"]["high"] == report["ways"][0]["ask_mib"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        pytest.param(["--node-selector", "gpu"], "--node-selector = 'gpu': is not KEY=VALUE", id="selector"),
        pytest.param(["--cpu", "many"], "--cpu = 'many': is not a Kubernetes quantity", id="CPU"),
        pytest.param(["--memory", "lots"], "--memory = 'lots': is not a Kubernetes quantity", id="memory"),
        pytest.param(["--tp", "3"], "--tp = 3: does not divide", id="heads"),
        pytest.param(["-f", "nowhere.yaml"], "nowhere.yaml: cannot be read", id="file"),
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(
    config: str, cluster: str, options: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["fit", config, "-f", cluster, *options])

    captured = capsys.readouterr()
    assert (status, captured.out, captured.err.count("\n")) == (2, "", 1)
    assert error in captured.err
