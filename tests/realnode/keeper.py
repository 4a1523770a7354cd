"""Holds the namespaces of one node, and clears up after it however the test that owns it ends.

It lives as long as its standard input is open. A killed test closes it as surely as one that ends well.
"""

import shutil
import signal
import sys
from pathlib import Path

from controlplane.processes import Child, wait_until
from realnode.cgroups import make_roots, remove_roots


def main(folder: Path, cgroup: str) -> None:
    """Make cgroups and namespaces, print the process id of their init, and wait to be let go."""
    make_roots(cgroup)
    arguments = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child=SIGKILL",
        "sh",
        str(folder / "init.sh"),
    ]
    holder = Child("namespaces", arguments, folder / "init.log")
    try:
        ready = folder / "init.pid"
        wait_until(ready.exists, "the node's namespaces", children=(holder,), seconds=30.0)
        print(ready.read_text().strip(), flush=True)  # noqa: T201
        sys.stdin.buffer.read()
    finally:
        holder.signal(signal.SIGKILL)
        holder.stop()
        remove_roots(cgroup)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
