"""A machine for every test that asks for one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakenvml import FakeNvml
from probes.machines import Machine


@pytest.fixture
def machine(fake_nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    for name, value in fake_nvml.environment().items():
        monkeypatch.setenv(name, value)
    made = Machine(fake_nvml, tmp_path / "machine")
    yield made
    fake_nvml.set()  # whatever hangs is let go
    made.probe.close()
