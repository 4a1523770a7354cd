"""`vramline agent` as a process: NVIDIA's own bindings on a stand-in library."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fakenvml import Card, FakeNvml


def run(
    nvml: FakeNvml, *options: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "vramline", "agent", "--library", str(nvml.library), *options]
    given = {**os.environ, **nvml.environment(), **(env or {})}
    return subprocess.run(arguments, capture_output=True, text=True, check=False, env=given, timeout=60)


def look(nvml: FakeNvml, *options: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """One look as the report's status."""
    answer = run(nvml, "--once", "-o", "json", "--node", "n1", *options, env=env)
    assert answer.returncode == 0, answer.stderr
    report: dict[str, Any] = json.loads(answer.stdout)
    assert (report["kind"], report["metadata"]) == ("GpuReport", {"name": "n1"})
    status: dict[str, Any] = report["status"]
    return status


def test_one_look_needs_no_cluster(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path, Card("GPU-1", used=6144, reserved=550, processes={os.getpid(): 6144}))

    (card,) = look(nvml, env={"KUBECONFIG": "/nowhere"})["gpus"]

    assert (card["usedMiB"], card["reservedMiB"], card["health"]) == (6144, 550, "Healthy")
    assert card["processes"] == [{"pid": os.getpid(), "usedMiB": 6144, "podUID": None}]


def test_a_process_that_does_not_exist_is_not_attributed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    nvml = FakeNvml(tmp_path, Card("GPU-1", used=5, processes={gone.pid: 5}))

    (card,) = look(nvml)["gpus"]

    assert card["processes"] == [{"pid": gone.pid, "usedMiB": 5}]


def test_a_lost_and_a_hanging_card_do_not_hide_the_others(tmp_path: Path) -> None:
    nvml = FakeNvml(
        tmp_path, Card("GPU-1", lost=True), Card("GPU-2", hangs=("memory",)), Card("GPU-3", used=7)
    )

    status = look(nvml)

    assert [(card["uuid"], card["usedMiB"]) for card in status["gpus"]] == [("GPU-3", 7)]
    lost, hanging = status["notes"]
    assert "GPU_IS_LOST" in lost
    assert "GPU-2 never told its size: TIMEOUT" in hanging


def test_memory_that_the_card_does_not_tell_is_absent(tmp_path: Path) -> None:
    nvml = FakeNvml(
        tmp_path,
        Card("GPU-1", used=10, errors={"processes": 3, "graphics": 3, "temperature": 3, "utilization": 999}),
    )

    (card,) = look(nvml)["gpus"]

    assert card["usedMiB"] == 10
    assert not {"processes", "temperatureC", "utilizationPercent"} & card.keys()


def test_a_partitioned_card_says_so(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path)
    nvml.load("a100-mig")

    assert any(card.get("mig") for card in look(nvml)["gpus"])


def test_the_nodes_own_mode_comes_from_its_environment(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path, Card("GPU-1"))

    assert look(nvml, env={"HAMI_ENABLE_REALTIME_CHECK": "false"})["realtimeCheck"] == "disabled"
    assert "realtimeCheck" not in look(nvml)


def test_the_table_names_every_card_and_what_is_not_known(tmp_path: Path) -> None:
    nvml = FakeNvml(
        tmp_path,
        Card("GPU-1", used=6144),
        Card("GPU-2", errors={"processes": 3, "graphics": 3, "temperature": 3}),
    )

    lines = run(nvml, "--once").stdout.splitlines()

    assert lines[0].split()[:3] == ["GPU", "UUID", "MODEL"]
    assert "6,144 MiB" in lines[1]
    assert lines[2].split()[-1] == "?"


@pytest.mark.parametrize(
    ("orders", "words"),
    [
        ({"init": 9}, ["DRIVER_NOT_LOADED", "Load the driver"]),
        ({"init": 4}, ["NO_PERMISSION"]),
    ],
    ids=["no driver", "no permission"],
)
def test_without_cards_one_line_says_why_and_what_to_do(
    tmp_path: Path, orders: dict[str, int], words: list[str]
) -> None:
    nvml = FakeNvml(tmp_path)
    nvml.set(**orders)

    answer = run(nvml, "--once")

    assert answer.returncode == 1
    assert answer.stderr.count("\n") == 1
    assert all(word in answer.stderr for word in words)


@pytest.mark.parametrize(
    ("options", "env", "problem"),
    [
        (["--interval", "5ms"], {}, "--interval = '5ms': must be from 0.1 s to 60 s"),
        (["--scheduler", "somewhere"], {}, "--scheduler = 'somewhere': is not host:port"),
        (["--library", "relative.so"], {}, "--library = 'relative.so': is not an absolute path"),
        ([], {"HAMI_ENABLE_REALTIME_CHECK": "perhaps"}, "HAMI_ENABLE_REALTIME_CHECK = 'perhaps'"),
    ],
    ids=["interval", "scheduler", "library", "environment"],
)
def test_a_wrong_call_is_one_line_and_exits_with_2(
    tmp_path: Path, options: list[str], env: dict[str, str], problem: str
) -> None:
    answer = run(FakeNvml(tmp_path, Card("GPU-1")), *options, env=env)

    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert problem in answer.stderr


def test_the_agent_imports_nothing_large_that_it_does_not_need() -> None:
    heavy = ["numpy", "starlette", "uvicorn", "uvloop", "httpx", "cryptography", "grpc"]
    code = f"import sys, vramline.cli.agent; print([name for name in {heavy} if name in sys.modules])"

    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout == "[]\n"


def test_what_it_costs_is_measured_from_outside(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path, *(Card(f"GPU-{number}", used=number) for number in range(3)))
    arguments = [sys.executable, "-m", "vramline", "bench", "agent", "--library", str(nvml.library)]
    arguments += ["--seconds", "2", "--interval", "200ms", "-o", "json"]

    answer = subprocess.run(
        arguments, capture_output=True, text=True, check=True, env={**os.environ, **nvml.environment()}
    )

    figures = json.loads(answer.stdout)
    assert (figures["gpus"], figures["with_reports"]) == (3, False)
    assert figures["samples"] > 2
    assert figures["rss_mib"] > 10
