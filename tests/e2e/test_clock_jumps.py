"""Two replicas, and the leader's wall clock is set: it leads, holds and releases as before."""

import datetime as dt
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import VramlineProcess, apply_crds, run_scheduler
from e2e.books import LEDGERS, read_books
from e2e.clock_shim import ShiftedClock
from e2e.extender_calls import bind, waiting_pods
from e2e.grounds import CAPACITY, LEASE_S, Ground, ground

HOUR = 3_600
GRACE_S = 5
"""Where no agent speaks, memory of a pod is free so long after it was missed."""
NAMES = [f"p{number}" for number in range(CAPACITY)]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/vramline-system/leases/jump"


@dataclass(frozen=True, slots=True)
class Pair:
    leader: VramlineProcess
    follower: VramlineProcess
    clock: ShiftedClock
    """The leader's."""


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        apply_crds(client)
        yield client


@pytest.fixture
def pair(plane: ControlPlane, admin: httpx.Client, tmp_path: Path) -> Iterator[Pair]:
    admin.get("/version").raise_for_status()
    clock = ShiftedClock(tmp_path)
    options = ["--lease", "vramline-system/jump", "--lease-duration", str(LEASE_S)]
    # No agent speaks after the first report, so that only time can tell when memory is free.
    env = {"VRAMLINE_RELEASE_GRACE": f"{GRACE_S}s", "VRAMLINE_OBSERVATION_MAX_AGE": "1s"}
    with ExitStack() as stack:
        leader = stack.enter_context(
            run_scheduler(
                plane, name=f"{tmp_path.name}-a", options=options, env=env | clock.env | {"POD_NAME": "a"}
            )
        )
        follower = stack.enter_context(
            run_scheduler(
                plane, name=f"{tmp_path.name}-b", leads=False, options=options, env=env | {"POD_NAME": "b"}
            )
        )
        yield Pair(leader, follower, clock)
        clock.set(0)


def epoch(admin: httpx.Client) -> int:
    number: int = admin.get(LEASE).json()["spec"]["leaseTransitions"]
    return number


def is_renewed_by_a_wrong_clock(admin: httpx.Client) -> bool:
    """Whether the leader renewed its Lease since its clock was set."""
    moment = dt.datetime.fromisoformat(admin.get(LEASE).json()["spec"]["renewTime"])
    return abs(moment - dt.datetime.now(dt.UTC)) > dt.timedelta(minutes=30)


def claimed(admin: httpx.Client, node: str) -> set[str]:
    """The pods that a node's ledger holds something for."""
    ledger = admin.get(f"{LEDGERS}/{node}").json()
    return {claim["pod"] for card in ledger["spec"]["claims"].values() for claim in card}


def fill(here: Ground, leader: VramlineProcess) -> None:
    here.create(*NAMES)
    wait_until(lambda: not here.try_all(leader) or not waiting_pods(here.admin, here.name), "all to be bound")


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["an hour on", "an hour back"])
def test_a_jump_of_the_leaders_clock_changes_nothing(jump: int, admin: httpx.Client, pair: Pair) -> None:
    with ground(admin, f"jump-{'on' if jump > 0 else 'back'}") as here:
        wait_until(lambda: knows(pair.leader, here.name), "the node to be known")
        wait_until(lambda: knows(pair.follower, here.name), "the node to be known")
        fill(here, pair.leader)
        term = epoch(admin)

        pair.clock.set(jump)
        ended_at = time.monotonic()
        here.end(*NAMES[:2])
        gone = {f"{here.name}/{name}" for name in NAMES[:2]}
        wait_until(lambda: is_renewed_by_a_wrong_clock(admin), "a renewal after the jump")
        here.create("late", "later")
        wait_until(lambda: not claimed(admin, here.name) & gone, "the release", children=(pair.leader.child,))
        assert time.monotonic() - ended_at >= GRACE_S, "memory was free before the grace period"

        assert epoch(admin) == term, "nobody else took over"
        assert pair.leader.leads()
        assert not pair.follower.leads()
        for pod in waiting_pods(admin, here.name):
            assert bind(pair.follower.client, pod, here.name) == "this replica does not lead"
        wait_until(lambda: not here.try_all(pair.leader), "the freed memory to be used")
        assert read_books(admin).mistakes() == []


def knows(process: VramlineProcess, node: str) -> bool:
    return any(gpu["node"] == node for gpu in process.client.get("/api/v1/gpus").json()["gpus"])
