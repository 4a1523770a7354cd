"""The scheduler as a process of its own beside a stand-in for the API server, in the small."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.processes import wait_until
from vramline.bench.extender import measure_extender
from vramline.bench.population import PopulationShape
from vramline.bench.recovery import measure_recovery


def say_nothing(_done: int, _total: int) -> None:
    """Nobody watches."""


def test_pods_are_placed_through_the_real_extender() -> None:
    shape = PopulationShape(nodes=30, gpus=4, pods=60, waiting=25)

    figures = measure_extender(shape, progress=say_nothing)

    assert (figures.nodes, figures.claims, figures.calls, figures.placed) == (30, 60, 17, 17)
    assert min(figures.filter.cpu_ms, figures.prioritize.cpu_ms, figures.floor.cpu_ms, figures.rss_mib) > 0
    assert figures.filter_over_floor > 0


def test_a_start_ends_in_a_right_decision_with_none_wrong_before() -> None:
    figures = measure_recovery(PopulationShape(nodes=30, gpus=4, pods=60), starts=1, progress=say_nothing)

    assert figures.wrong == 0
    assert figures.right_s > 0
    assert figures.peak_rss_mib > 0
    assert figures.beside_peak_rss_mib >= 0  # there is no such process where there is but one core


def commands_of_group(group: int) -> list[str]:
    """Return the command lines of all processes of a group that have not ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, of = (folder / "stat").read_text().rpartition(") ")[2].split()[:3]
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has just ended
            continue
        if int(of) == group and state != "Z":
            found.append(command)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_what_a_benchmark_started_does_not_outlive_it(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "vramline", "bench", "recovery", "--nodes", "300", "--starts", "50"]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL) as bench:
        try:
            wait_until(
                lambda: any("vramline scheduler" in each for each in commands_of_group(bench.pid)),
                "a scheduler",
            )
            os.kill(bench.pid, number)

            assert bench.wait(60.0) == 128 + number
            wait_until(lambda: commands_of_group(bench.pid) == [], "the end of all processes")
        finally:
            if commands_of_group(bench.pid):
                os.killpg(bench.pid, signal.SIGKILL)
