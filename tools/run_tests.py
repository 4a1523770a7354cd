"""`make test`: the whole suite, and a second try for tests of real processes on a machine that was too busy.

A few tests start kube-apiserver, kubelet or a browser beside each other; on two shared cores one of them may
run out of time although nothing is wrong. At most three of those are run again, one after the other, with
nothing beside them, and named: a test that needs its second try is a defect to be mended. Every other failure
is final at once.
"""

import json
import subprocess
import sys
from pathlib import Path

_REAL_PROCESSES = ("tests/e2e/", "tests/realnode/", "tests/dashboard/", "tests/bench/")
_MOST = 3
_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main() -> int:
    """Run the suite with the arguments given."""
    _FAILED.unlink(missing_ok=True)
    code = _pytest("-n", "auto", "--dist", "loadfile", *sys.argv[1:])
    failed = list(json.loads(_FAILED.read_text())) if _FAILED.is_file() else []
    if code != 1 or not 0 < len(failed) <= _MOST:
        return code
    if not all(test.startswith(_REAL_PROCESSES) for test in failed):
        return code
    names = "\n".join(f"  {test}" for test in failed)
    print(f"failed beside others; a second try, alone:\n{names}", flush=True)  # noqa: T201 — a program's output
    code = _pytest("-p", "no:xdist", *failed)
    if code == 0:
        print(f"UNSTEADY, passed only alone; mend them:\n{names}", flush=True)  # noqa: T201
    return code


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *arguments], check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
