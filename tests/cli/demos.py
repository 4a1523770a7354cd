"""A demo as people run it, for tests that need one."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["COMMAND", "running_demo"]

COMMAND = [sys.executable, "-m", "vramline", "demo"]


@contextmanager
def running_demo(
    *arguments: str, listen: str = "127.0.0.1:0"
) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Start a demo, on a free port unless one is named, and wait until it says where it is."""
    with subprocess.Popen(
        [*COMMAND, "--listen", listen, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"serving (http://\S+)", said)
        if found is None:
            process.kill()
            raise AssertionError(f"the demo says {said!r} {process.communicate()}")
        try:
            yield process, found[1]
        finally:
            if process.poll() is None:
                process.kill()
