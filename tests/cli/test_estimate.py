"""`vramline estimate` as people call it."""

import json
from pathlib import Path

import pytest
import yaml

from inference.models import LLAMA_8B
from vramline.cli.main import main


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA_8B), encoding="utf-8")
    return str(file)


def test_the_table_shows_every_part_with_its_formula(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["estimate", config, "--context", "8192", "--concurrency", "4", "--gpu-memory", "80Gi"])

    shown = capsys.readouterr().out
    assert status == 0
    for words in (
        "8,030,261,248 parameters × 2 B (bfloat16)",
        "131,072 B a token × 8,192 tokens × 4 sequences",
        "cuda graphs",
        "each GPU",
        "A card of 81,920 MiB holds it.",
        "--gpu-memory-utilization=0.26",
    ):
        assert words in shown


def test_a_card_may_be_given_as_tools_print_it(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """vLLM logged 476,016 tokens of cache for this model on that card."""
    call = ["estimate", config, "--context", "8192", "--gpu-memory", "79.19Gi", "--memory-fraction", "0.95"]
    main([*call, "-o", "json"])

    card = json.loads(capsys.readouterr().out)["card"]
    assert card["total_mib"] == 81_090
    assert card["kv_tokens"] == pytest.approx(476_016, rel=0.001)


def test_json_and_yaml_say_the_same(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["estimate", config, "--ctx", "4096", "--tp", "2", "--engine", "sglang", "-o"]
    main([*call, "json"])
    as_json = json.loads(capsys.readouterr().out)
    main([*call, "yaml"])

    assert yaml.safe_load(capsys.readouterr().out) == as_json
    assert as_json["per_gpu"]["low"] < as_json["per_gpu"]["expected"] < as_json["per_gpu"]["high"]
    assert as_json["total"]["expected"] == pytest.approx(2 * as_json["per_gpu"]["expected"], abs=2)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        pytest.param(["--tp", "3"], "--tp = 3: does not divide 32 heads", id="heads"),
        pytest.param(["--gpu-memory", "big"], "--gpu-memory = 'big': is not an amount", id="card"),
        pytest.param(["--quantization", "q4"], "--quantization = 'q4': is not understood", id="method"),
        pytest.param(["--memory-fraction", "0.9"], "a share of a card whose size is not known", id="share"),
        pytest.param(["--engine", "tgi"], "'tgi'", id="engine"),
        pytest.param(["--context", "0"], "--context", id="context"),
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(
    config: str, options: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["estimate", config, *options])

    captured = capsys.readouterr()
    assert (status, captured.out, captured.err.count("\n")) == (2, "", 1)
    assert error in captured.err


def test_a_model_that_is_not_understood_gets_no_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**LLAMA_8B, "num_experts": 8}), encoding="utf-8")

    assert main(["estimate", str(file)]) == 2
    assert "num_experts = 8: changes how much memory a model needs" in capsys.readouterr().err
