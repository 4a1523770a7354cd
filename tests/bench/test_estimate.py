"""How good the estimate is, on runs that somebody measured."""

import re
from pathlib import Path

import msgspec
import pytest

from house.tree import ROOT
from inference.models import data_folder
from vramline.bench.estimate import EstimateReport, compare_runs, read_configs
from vramline.errors import RequestError


@pytest.fixture(scope="module")
def report() -> EstimateReport:
    return compare_runs(data_folder() / "vllm_h100_measured.csv")


def test_every_measured_run_is_compared(report: EstimateReport) -> None:
    assert (len(report.runs), report.skipped) == (41, [])


def test_cache_per_token_is_within_two_per_mille(report: EstimateReport) -> None:
    assert max(abs(run.kv_error) for run in report.runs) < 0.002


def test_weights_are_within_one_and_a_half_percent(report: EstimateReport) -> None:
    assert max(abs(run.weights_error) for run in report.runs) < 0.015


def test_all_but_the_cache_is_within_five_percent(report: EstimateReport) -> None:
    assert max(abs(run.fixed_error) for run in report.runs) < 0.05


def test_a_model_that_no_constant_was_fitted_on_comes_out_as_well(report: EstimateReport) -> None:
    figures = {each.part: each for each in report.errors}

    assert abs(figures["all but KV, all"].left_out_worst) < 0.05
    assert figures["all but KV, dense"].left_out_median < 0.01


def test_the_constants_in_use_are_those_that_the_runs_suggest(report: EstimateReport) -> None:
    used, fitted = msgspec.to_builtins(report.constants), msgspec.to_builtins(report.fitted)

    assert {name: value for name, value in used.items() if abs(fitted[name] / value - 1) > 0.12} == {}


def test_the_table_in_the_docs_is_what_the_runs_say(report: EstimateReport) -> None:
    text = (ROOT / "docs" / "estimate.md").read_text(encoding="utf-8").replace("−", "-")

    for each in report.errors:
        [row] = re.findall(rf"^\| {re.escape(each.part)} \| [\d.]+ % .*$", text, re.MULTILINE)
        told = [float(figure) / 100 for figure in re.findall(r"([+-]?[\d.]+) %", row)]
        figures = [each.median, each.worst, each.left_out_median, each.left_out_worst]
        assert told == pytest.approx(figures, abs=0.0006), each.part


def test_every_run_lies_between_low_and_high(report: EstimateReport) -> None:
    assert report.inside == len(report.runs)


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("model,status\nQwen/Qwen3-8B,ok\n", encoding="utf-8")

    with pytest.raises(RequestError, match="cannot be read"):
        compare_runs(tmp_path / "x.csv")


def test_further_models_come_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a--b.json").write_text('{"model_type": "llama"}', encoding="utf-8")

    assert read_configs(tmp_path) == {"a/b": {"model_type": "llama"}}


def test_rows_that_cannot_be_compared_are_listed(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("model,status\na/b,ok\nQwen/Qwen3-8B,oom\n", encoding="utf-8")

    assert compare_runs(tmp_path / "x.csv").skipped == ["a/b: not known here", "Qwen/Qwen3-8B: oom"]
