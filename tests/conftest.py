"""What is the same for all tests: how hypothesis runs, with no wall-clock deadline; signals; cards."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fakenvml import CompilerMissingError, FakeNvml

settings.register_profile(
    "house",
    deadline=None,
    derandomize=True,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("house")


def pytest_configure() -> None:
    """Hear Ctrl-C again, so that what tests start does: jobs in the background of a shell are deaf to it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def fake_nvml(tmp_path: Path) -> FakeNvml:
    """A stand-in NVML library, with no cards yet. Skipped where nothing can compile it, but not in CI."""
    try:
        return FakeNvml(tmp_path)
    except CompilerMissingError as error:
        if os.environ.get("CONTROLPLANE_REQUIRED"):
            pytest.fail(str(error))
        pytest.skip(str(error))
