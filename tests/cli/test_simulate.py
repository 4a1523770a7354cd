"""`vramline simulate` as people call it."""

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulate.clusters import card, node, pod, report, run
from vramline.cli.main import main
from vramline.cli.progress import Progress
from vramline.cli.simulate_tables import print_report
from vramline.model.ask import PolicyName
from vramline.simulate.report import report_run

_CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: n1, annotations: {vramline.io/gpus-physical: "1x32600"}}
status: {allocatable: {nvidia.com/gpu: "1"}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: llm, namespace: a}
spec:
  replicas: 5
  template: {metadata: {annotations: {gpu-memory: "8000"}}, spec: {containers: [{name: c}]}}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    file = tmp_path / "cluster.yaml"
    file.write_text(_CLUSTER, encoding="utf-8")
    return str(file)


def test_pending_pods_are_no_failure(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["simulate", "-f", cluster, "-o", "json"])

    captured = capsys.readouterr()
    assert (status, captured.err) == (0, "")
    assert json.loads(captured.out)["summary"]["bound"] == 4


def test_yaml_says_the_same_as_json(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["simulate", cluster, "-o", "json"])
    as_json = json.loads(capsys.readouterr().out)
    main(["simulate", cluster, "-o", "yaml"])

    assert yaml.safe_load(capsys.readouterr().out) == as_json


def test_several_paths_and_standard_input(
    cluster: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    more = b"apiVersion: v1\nkind: Pod\nmetadata: {name: more}\nspec: {containers: [{name: c}]}\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(more)))

    main(["simulate", cluster, "-f", "-", "-o", "json"])

    assert {each["pod"] for each in json.loads(capsys.readouterr().out)["pods"]} >= {
        "a/llm-0",
        "default/more",
    }


@pytest.mark.parametrize(
    ("options", "path", "value"),
    [
        pytest.param(["--policy", "spread"], ("policy",), "spread", id="policy"),
        pytest.param(["--realtime", "warning"], ("mode",), "warning", id="mode"),
        pytest.param(["--enable-realtime-check", "false"], ("mode",), "disabled", id="the switch"),
        pytest.param(["--margin", "1Gi"], ("gpus", 0, "margin_mib"), 1024, id="margin"),
        pytest.param(["--now", "2026-01-01T00:00:00Z"], ("now",), "2026-01-01T00:00:00Z", id="now"),
        pytest.param(["--all-nodes"], ("pods", 0, "nodes", 0, "node"), "n1", id="all nodes"),
    ],
)
def test_options(
    options: list[str], path: tuple[Any, ...], value: object, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["simulate", cluster, "-o", "json", *options])

    found: Any = json.loads(capsys.readouterr().out)
    for step in path:
        found = found[step]
    assert found == value


def test_settings_come_from_a_file(cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "settings").write_text("margin: 600\npolicy: binpack\n", encoding="utf-8")

    main(["simulate", cluster, "-o", "json", "--config", str(tmp_path / "settings")])

    printed = json.loads(capsys.readouterr().out)
    assert (printed["policy"], printed["gpus"][0]["free_mib"]) == ("binpack", 0)


def test_decisions_are_traced_at_verbosity_4(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["simulate", cluster, "--v=4"])

    tags = set(re.findall(r"^\[([A-Z_]+)\] ", capsys.readouterr().err, re.MULTILINE))

    assert tags == {
        *("GPU_FILTER", "GPU_FIT_CHECK", "IDLE_CHECK", "RESOURCE_CHECK", "GPU_SELECT", "GPU_ALLOCATE")
    }


def test_the_table_shows_pods_why_they_wait_cards_and_a_sum(
    cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["simulate", cluster])

    lines = capsys.readouterr().out.splitlines()

    assert lines[0].split() == ["STATUS", "POD", "NODE", "GPU", "MIB", "WHY"]
    assert lines[1].split() == ["Bound", "a/llm-0", "n1", "n1/gpu-0", "8,000", "PlacedByBooks"]
    assert lines[5].split() == ["Pending", "a/llm-4", "–", "–", "8,000", "InsufficientVram"]
    assert lines[7:10] == [
        "a/llm-4",
        "  0/1 nodes fit: 1 InsufficientVram (closest n1/gpu-0, short by 7,500 MiB)",
        "  → fits on n1 if the ask is ≤ 500 MiB",
    ]
    assert lines[-1] == "4 bound, 1 pending, 0 rejected; real-time check strict, policy vramline"
    assert not [line for line in lines if line != line.rstrip()]


def printed_at(
    width: int, documents: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    print_report(report_run(run(*documents)))
    return str(capsys.readouterr().out)


@pytest.mark.parametrize("width", [80, 120])
def test_a_table_fits_a_terminal_however_long_names_are(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"gpu-machine-{number}.rack-7.example.internal" for number in range(3)]
    documents = [
        *(node(name) for name in names),
        *(
            report(card(f"GPU-{number}7f3a9c02-77aa-4be1-9d10-0123456789ab"), node=name)
            for number, name in enumerate(names)
        ),
        *(pod(f"a-pod-with-a-name-that-is-longer-than-any-column-{number}", 20_000) for number in range(5)),
    ]

    text = re.sub(r"\x1b\[[0-9;]*m", "", printed_at(width, documents, monkeypatch, capsys))

    assert max(map(len, text.splitlines())) <= width
    assert "gpu-machine-2" in text
    assert "20,000" in text


def test_a_large_run_lists_only_what_was_not_placed(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [node(f"n{number}", 40_000, cards=2) for number in range(60)]

    print_report(
        report_run(run(*nodes, *(pod(f"p{number}", 10_000) for number in range(250)), pod("big", 50_000)))
    )

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:2] == ["Pending", "ns/big"]
    assert lines[2] == "… and 250 more pods; -o json lists all"
    assert any(line.split()[:2] == ["MODEL", "GPUS"] for line in lines)


def test_notes_about_pods_stand_below_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    there = [pod(f"p{number}", 1_000, nodeName="n1") for number in range(5)]

    print_report(report_run(run(node(), *there)))

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[-2:] == ["note", "below"]
    assert "! ns/p0, ns/p1, ns/p2 and 2 more: nothing says which GPU it is on" in lines[7]


def test_an_empty_input_is_a_sum_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(report_run(run()))

    assert capsys.readouterr().out.startswith("0 bound, 0 pending, 0 rejected")


def test_progress_is_silent_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        stage = progress.stage("placing", least=10)
        stage(1, 5)
        stage(1, 50)
        stage(50, 50)

    assert capsys.readouterr().err == ""


def test_progress_is_shown_on_a_terminal_for_what_takes_a_while(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")

    with Progress() as progress:
        stage = progress.stage("placing", least=10)
        stage(1, 50)
        stage(50, 50)

    assert "placing" in capsys.readouterr().err


def test_many_errors_are_cut_short_and_all_are_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        _CLUSTER.replace("replicas: 5", "replicas: 150").replace('"8000"', '"8 GB"'), encoding="utf-8"
    )

    status = main(["simulate", str(file), "-o", "json"])

    captured = capsys.readouterr()
    assert status == 2
    assert captured.err.splitlines()[-1] == "error: … and 50 more; `-o json` lists all"
    assert len(json.loads(captured.out)["problems"]) == 150


def test_of_many_reasons_those_of_the_most_pods_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    asks = [40_000 + number for number in range(25)] + [50_000, 50_000]

    print_report(report_run(run(node(), *(pod(f"p{number}", mib) for number, mib in enumerate(asks)))))

    lines = capsys.readouterr().out.splitlines()
    assert lines[29] == "ns/p25, ns/p26"
    assert "… and 6 more reasons; -o json lists all" in lines


def test_help_names_every_policy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--help"]) == 0

    told = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert f"How nodes that fit are ranked: {', '.join(sorted(PolicyName))}." in told
