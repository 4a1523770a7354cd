"""What `vramline deploy isvc` says before it asks a cluster; the rest is tried against a real one."""

from pathlib import Path

import pytest

from vramline.cli.main import main

SERVICE = """
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: s}
spec:
  model: {modelName: m}
"""


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (["--model", "m", "--runtime", "r"], "NAME: is missing"),
        (["s", "--runtime", "r"], "--model: is missing"),
        (["s", "--model", "m"], "--runtime: is missing"),
        (["My Service", "--model", "m", "--runtime", "r"], "is not a name that OME takes"),
        (["s", "--model", "m", "--runtime", "r", "--gpu-memory", "much"], "--gpu-memory = 'much'"),
        (
            ["s", "--model", "m", "--runtime", "r", "--gpu-memory", "1Gi", "--config", "c"],
            "both say how much is needed",
        ),
    ],
    ids=["no name", "no model", "no runtime", "a bad name", "a bad size", "two sizes"],
)
def test_a_wrong_call_is_one_line_and_status_2(
    call: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", "isvc", *call]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert len(said.splitlines()) == 1


def test_a_service_that_ome_would_refuse_is_not_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(SERVICE, encoding="utf-8")

    assert main(["deploy", "isvc", "-f", str(file)]) == 2
    assert "InferenceService s: spec.model.name: is missing" in capsys.readouterr().err


def test_a_file_without_a_service_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("kind: Pod\napiVersion: v1\n", encoding="utf-8")

    assert main(["deploy", "isvc", "-f", str(file)]) == 2
    assert "has 0 InferenceServices in it" in capsys.readouterr().err
