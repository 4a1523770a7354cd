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
def plane(commands: Commands, request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """An API server of this module's own, empty at first; under `pytest.mark.audited` writes are noted."""
    audited = request.node.get_closest_marker("audited") is not None
    with control_plane(commands, audited=audited) as running:
        yield running


@pytest.fixture(scope="module")
def minor(plane: ControlPlane) -> int:
    """Which Kubernetes it is: 35 for 1.35."""
    with plane.client() as client:
        return int(client.get("/version").raise_for_status().json()["minor"].rstrip("+"))


@pytest.fixture(autouse=True)
def _is_there_yet(request: pytest.FixtureRequest) -> None:
    """Skip what an older Kubernetes does not have: `pytest.mark.since(33)`."""
    marker = request.node.get_closest_marker("since")
    if marker is not None and (minor := request.getfixturevalue("minor")) < marker.args[0]:
        pytest.skip(f"Kubernetes 1.{minor} does not have it")
