"""A leader that is stopped politely hands over: who comes next binds, and how soon is printed."""

import re
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import VramlineProcess, apply_crds, run_scheduler
from e2e.books import read_books
from e2e.grounds import CAPACITY, Ground, ground

NAMES = [f"p{number}" for number in range(CAPACITY)]


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        apply_crds(client)
        yield client


def start(plane: ControlPlane, stack: ExitStack, name: str) -> VramlineProcess:
    """Start a replica in a pod of its own, with the election's default times, and wait until it knows all."""
    process = stack.enter_context(run_scheduler(plane, name=name, leads=False, env={"POD_NAME": name}))
    wait_until(lambda: process.client.get("/readyz").is_success, f"{name} to be ready")
    return process


def moment_of(process: VramlineProcess, event: str) -> str:
    """When a process logged an event last, in a form that sorts by time; empty: not yet."""
    found = re.findall(rf'"event": "{event}".*"timestamp": "([^"]+)"', process.child.log.read_text())
    return found[-1] if found else ""


def hand_over(here: Ground, leader: VramlineProcess, follower: VramlineProcess, pod: str) -> float:
    """Stop the leader and return the seconds until the follower has bound a pod that waits."""
    here.create(pod)
    started = time.monotonic()
    leader.child.signal(signal.SIGTERM)
    wait_until(lambda: here.goes_on(follower), "the follower to bind", children=(follower.child,))
    took = time.monotonic() - started
    wait_until(leader.child.has_ended, "the leader's end")
    return took


def test_the_follower_binds_after_the_leader_has_given_its_lease_back(
    plane: ControlPlane, admin: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    took = []
    with ground(admin, "relay") as here, ExitStack() as stack:
        leader = start(plane, stack, "relay-0")
        wait_until(leader.leads, "a leader")
        for number, pod in enumerate(NAMES, start=1):
            follower = start(plane, stack, f"relay-{number}")
            took.append(hand_over(here, leader, follower, pod))

            assert moment_of(leader, "leader.stopped") < moment_of(follower, "leader.started")
            assert "lease.not_released" not in leader.child.log.read_text()
            assert read_books(admin).mistakes() == []
            leader = follower
    with capsys.disabled():
        print(  # noqa: T201 — the figure is what this test is for
            f"\nSIGTERM to the follower's first binding: median {statistics.median(took):.1f} s,"
            f" worst of {len(took)} {max(took):.1f} s"
        )
