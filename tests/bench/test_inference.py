"""The choice of a node from a cluster that was read: what it starts, at the size that matters."""

import subprocess
import sys

import msgspec
import pytest

from vramline.bench.inference import Watch, measure_inference
from vramline.bench.manifests import ClusterShape
from vramline.cli.main import main


def test_a_choice_among_a_thousand_nodes_of_eight_starts_nothing() -> None:
    figures = measure_inference(ClusterShape(nodes=1_000, gpus=8, pods=500, running=1.0), rounds=1)

    assert (figures.processes, figures.connections) == (0, 0)
    assert all(each.answer.startswith("node-") for each in figures.questions[:4])
    assert [each.answer for each in figures.questions[4:]] == ["1000", "8000"]


def test_a_process_would_be_noticed() -> None:
    watch = Watch()
    watch.on = True

    subprocess.run([sys.executable, "-c", ""], check=True)

    watch.on = False
    assert watch.processes > 0


def test_the_figures_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "inference", "--nodes", "4", "--pods", "4", "--rounds", "2", "-o", "json"]) == 0
    figures = msgspec.json.decode(capsys.readouterr().out)
    assert (figures["nodes"], figures["processes"], len(figures["questions"])) == (4, 0, 6)

    assert main(["bench", "inference", "--nodes", "4", "--pods", "4", "--rounds", "2"]) == 0
    assert "0 processes started, 0 connections made" in capsys.readouterr().out
