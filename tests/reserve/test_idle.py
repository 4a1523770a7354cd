"""How a reservation pod waits: in next to no memory, until it is told to end."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.processes import wait_until

WAIT = (
    "import sys; from pathlib import Path; from vramline.reserve.idle import wait_for_the_end\n"
    "wait_for_the_end(Path(sys.argv[1]))"
)
NO_SHELL = "/nowhere/sh"
LIMITS_KIB = {"sh": 4_000, "bash": 6_000, "none": 16_000}
"""What the kernel may count as resident; measured 1.7 MiB, 3.1 MiB and 7.7 MiB."""


def shell_of(which: str) -> str:
    found = NO_SHELL if which == "none" else shutil.which(which)
    if found is None:
        pytest.skip(f"no {which} here")
    return found


def is_waiting(pid: int) -> bool:
    """Whether the process has become another program that sleeps."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return b"wait_for_the_end" not in command and state == "S"


def rss_kib(pid: int) -> int:
    [line] = [
        each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS")
    ]
    return int(line.split()[1])


@pytest.mark.parametrize("which", LIMITS_KIB)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_it_waits_in_little_memory_and_ends_when_told(which: str, number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", WAIT, shell_of(which)], stdin=subprocess.DEVNULL) as waiting:
        wait_until(lambda: is_waiting(waiting.pid), "the end of the Python that started it", seconds=60)
        resident = rss_kib(waiting.pid)
        waiting.send_signal(number)

        assert waiting.wait(30) == 0
        assert resident < LIMITS_KIB[which]


def test_it_has_no_child_and_no_timer() -> None:
    with subprocess.Popen([sys.executable, "-c", WAIT, shell_of("sh")], stdin=subprocess.DEVNULL) as waiting:
        wait_until(lambda: is_waiting(waiting.pid), "the end of the Python that started it", seconds=60)
        children = Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children").read_text()
        waiting.kill()

    assert children == ""
