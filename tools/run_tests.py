"""`make test`: the whole suite, and a second try for tests of real processes on a machine that was too busy.

A few tests start kube-apiserver, kubelet or a browser beside each other; on two shared cores one of them may
run out of time although nothing is wrong. At most three of those are run again, one after the other, with
nothing beside them, and named: a test that needs its second try is a defect to be mended. Every other failure
is final at once.
"""

import subprocess
import sys

import pytest

_REAL_PROCESSES = ("tests/e2e/", "tests/realnode/", "tests/dashboard/", "tests/bench/")
_MOST = 3


class _Failures:
    """Notes which tests fail."""

    def __init__(self) -> None:
        self.tests: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.tests:
            self.tests.append(report.nodeid)


def main() -> int:
    """Run the suite with the arguments given."""
    failures = _Failures()
    code = int(pytest.main(["-q", "-n", "auto", "--dist", "loadfile", *sys.argv[1:]], plugins=[failures]))
    failed = failures.tests
    if code != 1 or not 0 < len(failed) <= _MOST:
        return code
    if not all(test.startswith(_REAL_PROCESSES) for test in failed):
        return code
    names = "\n".join(f"  {test}" for test in failed)
    print(f"failed beside others; a second try, alone:\n{names}", flush=True)  # noqa: T201 — a program's output
    again = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", *failed]
    code = subprocess.run(again, check=False).returncode  # noqa: S603
    if code == 0:
        print(f"UNSTEADY, passed only alone; mend them:\n{names}", flush=True)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
