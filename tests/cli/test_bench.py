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


def test_a_simulation_is_timed_from_json_to_the_fate_of_every_pod(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "simulate", "--nodes", "3", "--gpus", "2", "--pods", "40", "-o", "json"]) == 0

    report = msgspec.json.decode(capsys.readouterr().out)
    assert (report["nodes"], report["gpus_per_node"], report["pods"]) == (3, 2, 40)
    assert report["bound"] > 0


def test_the_table_of_a_simulation_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "simulate", "--nodes", "2", "--pods", "10"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
