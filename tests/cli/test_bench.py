import msgspec
import pytest

from vramline.cli.main import main


def test_figures_are_printed_for_every_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "decide", "--nodes", "20,5", "--gpus", "2", "--pods", "30", "-o", "json"]) == 0

    printed = capsys.readouterr()
    report = msgspec.json.decode(printed.out)
    assert [(size["nodes"], size["decisions"]) for size in report["sizes"]] == [(5, 30), (20, 30)]
    assert report["ratio"] > 0
    assert report["nodes_ratio"] == 4.0
    assert printed.err == ""


def test_the_table_says_how_the_cost_grows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "decide", "--nodes", "2,4", "--pods", "5"]) == 0
    assert "2 times the nodes cost" in capsys.readouterr().out


@pytest.mark.parametrize("nodes", ["", "x", "0", "-5", "1,,2", "1e3", "99999999999", "٣"])
def test_a_wrong_list_of_sizes_is_one_line(nodes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "decide", "--nodes", nodes]) == 2

    complaint = capsys.readouterr().err
    assert "--nodes" in complaint
    assert complaint.count("\n") == 1
