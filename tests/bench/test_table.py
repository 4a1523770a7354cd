"""One table of all figures."""

from vramline.bench.table import TableRun, measure_everything


def test_every_benchmark_has_rows_and_what_is_missing_says_so() -> None:
    heard: list[tuple[int, int]] = []

    table = measure_everything(
        TableRun(commit="abc", nodes=10), lambda done, total: heard.append((done, total))
    )

    missing = {each.bench: each.value for each in table.figures if each.what == "not measured"}
    assert {each.bench for each in table.figures} == {
        *("decide", "openb", "extender", "recovery", "vram", "simulate", "estimate", "inference", "agent")
    }
    assert set(missing) == {"openb", "estimate", "agent"}
    assert "VRAMLINE_DATA" in missing["openb"]
    assert heard[-1] == (9, 9)
