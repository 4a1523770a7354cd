"""A real control plane for every module that asks for one."""

import os
from collections.abc import Iterator

import pytest

from controlplane.commands import Commands, CommandsMissingError, find_commands
from controlplane.plane import ControlPlane, control_plane
from realnode.machine import NodeMissingError, Programs, find_programs


@pytest.fixture(scope="session")
def commands() -> Commands:
    """The control plane's commands. Where they are missing the tests are skipped, but not in CI."""
    try:
        return find_commands()
    except CommandsMissingError as error:
        if os.environ.get("CONTROLPLANE_REQUIRED"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def programs() -> Programs:
    """What a real node runs. Where it is missing the tests are skipped, but not in CI."""
    try:
        return find_programs()
    except NodeMissingError as error:
        if os.environ.get("CONTROLPLANE_REQUIRED"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def plane(commands: Commands) -> Iterator[ControlPlane]:
    """An API server of this module's own, empty when it starts."""
    with control_plane(commands) as running:
        yield running
