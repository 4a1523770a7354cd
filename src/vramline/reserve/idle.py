"""How a reservation pod waits: as a shell that sleeps, because a Python that sleeps costs five times that.

The shell waits for a line from a pipe whose other end it holds itself: no second process, no timer, and
no line ever. As process 1 of its container it would not hear SIGTERM without the trap.
"""

import os
import sys
from pathlib import Path
from typing import NoReturn

__all__ = ["wait_for_the_end"]

_SHELL = Path("/bin/sh")
_SHELL_WAITS = "trap 'exit 0' TERM INT; read -r _"
_PYTHON_WAITS = (
    "import _signal, posix\n"
    "for number in (2, 15): _signal.signal(number, lambda *_: posix._exit(0))\n"
    "while True: _signal.pause()"
)
"""For images without a shell; modules of the interpreter itself, so that nothing else is loaded."""


def wait_for_the_end(shell: Path = _SHELL) -> NoReturn:
    """Become a program that does nothing until SIGTERM, and then ends with 0."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.access(shell, os.X_OK):
        mine, other = os.pipe()
        os.dup2(mine, 0)
        os.set_inheritable(other, True)  # noqa: FBT003 — its only way
        os.execv(shell, [str(shell), "-c", _SHELL_WAITS])  # noqa: S606 — no input in the command
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", _PYTHON_WAITS])  # noqa: S606
