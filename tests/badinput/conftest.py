"""Fixtures that run the real command."""

from pathlib import Path

import pytest

from badinput.command import GOOD, BesideGood, Said, Simulate
from vramline.cli.main import main


@pytest.fixture
def simulate(capsys: pytest.CaptureFixture[str]) -> Simulate:
    """Run `vramline simulate` in this process."""

    def run(*arguments: str | Path) -> Said:
        status = main(["simulate", *map(str, arguments)])
        captured = capsys.readouterr()
        lines = captured.err.splitlines()
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        return Said(status, captured.out, errors, [line for line in lines if not line.startswith("error: ")])

    return run


@pytest.fixture
def beside_good(tmp_path: Path, simulate: Simulate) -> BesideGood:
    """Run with the good cluster in one file and something else in another."""
    (tmp_path / "good.yaml").write_text(GOOD, encoding="utf-8")

    def run(content: str | bytes, name: str = "bad.yaml") -> Said:
        bad = tmp_path / name
        bad.write_bytes(content.encode() if isinstance(content, str) else content)
        return simulate("-f", tmp_path / "good.yaml", "-f", bad)

    return run
