"""The demo as people run it: a process that prints its address, serves, and stops well."""

import re
import signal
import socket
import subprocess
from pathlib import Path

import httpx
import pytest

from cli.demos import COMMAND, running_demo
from vramline.cli.main import main


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_signal_stops_the_demo_without_a_word_of_complaint(number: signal.Signals) -> None:
    with running_demo("--speed", "20") as (process, address):
        assert httpx.get(f"{address}/readyz", trust_env=False, timeout=60.0).json()["gpus"] == 8

        process.send_signal(number)
        output, complaints = process.communicate(timeout=60)

    assert (process.returncode, complaints) == (0, "")
    assert output.rstrip().endswith("stopped")


def test_the_demo_tells_what_to_try_and_what_happens() -> None:
    with running_demo("--speed", "20") as (process, address):
        assert process.stdout is not None
        told: list[str] = []
        while not any(" bound " in line for line in told):
            told.append(process.stdout.readline())

    assert any(f"vramline gpus --watch --server {address}" in line for line in told)


def test_a_pod_of_an_earlier_run_is_still_explained(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(f"historyPath: {tmp_path}/history.db\n")
    config = ("--config", str(tmp_path / "settings.yaml"))
    with running_demo("--quiet", "--speed", "20", *config) as (process, address):
        bound: list[str] = []
        while not bound:
            found = httpx.get(f"{address}/api/v1/decisions", trust_env=False, timeout=60.0).json()[
                "decisions"
            ]
            bound = [record["pod"] for record in found if record["outcome"] == "Bound"]
        process.terminate()
        process.communicate(timeout=60)

    with running_demo("--quiet", "--seed", "2", *config) as (_, address):
        story = httpx.get(f"{address}/api/v1/pods/{bound[0]}", trust_env=False, timeout=60.0).json()
        state = httpx.get(f"{address}/api/v1/history", trust_env=False, timeout=60.0).json()["history"]

    assert story["decision"]["node"] is not None
    assert state["where"] == str(tmp_path / "history.db")


def test_a_quiet_demo_says_nothing_more() -> None:
    with running_demo("--quiet", "--speed", "50") as (process, address):
        while not httpx.get(f"{address}/api/v1/decisions", trust_env=False, timeout=60.0).json()["decisions"]:
            pass
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)

    assert "bound" not in output


def test_a_busy_port_is_one_line_that_names_it_and_the_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        done = subprocess.run(
            [*COMMAND, "--listen", f"127.0.0.1:{port}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    assert done.returncode == 1
    assert re.fullmatch(rf"error: port {port} [^\n]* --listen [^\n]*\n", done.stderr)
    assert done.stdout == ""


def test_once_plays_the_five_stories_and_exits_well() -> None:
    done = subprocess.run(
        [*COMMAND, "--once"], capture_output=True, encoding="utf-8", check=False, timeout=180
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert [done.stdout.count(f"Story {number}: ") for number in range(1, 6)] == [1] * 5
    assert done.stdout.endswith("all stories came out right\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--listen", "0.0.0.0:8780"], "is not a loopback address", id="the whole network"),
        pytest.param(["--listen", "nowhere"], "is not host:port", id="no port"),
        pytest.param(["--nodes", "0"], "--nodes", id="no nodes"),
        pytest.param(["--nodes", "many"], "--nodes", id="not a number"),
        pytest.param(["--speed", "-1"], "--speed", id="backwards"),
        pytest.param(["--seed", "x"], "--seed", id="not a seed"),
        pytest.param(["--config", "/nonexistent.yaml"], "cannot be read", id="no such file"),
    ],
)
def test_a_wrong_option_is_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *arguments]) == 2

    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.err.count("\n") == 1
