"""What the table of all figures makes of a figure that must never be."""

import pytest
import typer

from vramline.bench.table import BenchTable, Figure
from vramline.cli.bench_all import fail_where_wrong

SLOW = Figure(bench="extender", what="filter", value="99 ms", goal="≤ 4 ms")
WRONG = Figure(bench="vram", what="  vramline, 10 pods", value="3 over-commits", is_wrong=True)


def test_what_is_only_slow_fails_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    fail_where_wrong(BenchTable(commit="abc", figures=[SLOW]))

    assert capsys.readouterr().err == ""


def test_what_must_never_be_is_named_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as raised:
        fail_where_wrong(BenchTable(commit="abc", figures=[SLOW, WRONG]))

    assert raised.value.exit_code == 1
    assert capsys.readouterr().err == "must never be: vram, vramline, 10 pods: 3 over-commits\n"
