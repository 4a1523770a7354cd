"""What a bind with a reservation costs: writes, counted by the API server itself, and the time of /bind.

The figures are printed (`pytest -s`); the number of writes is asserted, the time is not.
"""

import statistics
import sys
import time
from collections.abc import Iterator

import httpx
import pytest

from controlplane.kubelets import run_kubelets
from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import VramlineProcess, gpu_pod, run_scheduler
from e2e.audited import Writes
from e2e.extender_calls import bind
from e2e.reservation_world import RESERVES, World, open_world

pytestmark = pytest.mark.audited

OURS = "vramline-under-test"
CARDS = 8
SIZE = 46_068


@pytest.fixture(scope="module")
def world(plane: ControlPlane) -> Iterator[World]:
    with plane.client() as admin, run_kubelets(plane) as kubelets, open_world(admin, kubelets) as opened:
        yield opened


@pytest.fixture(scope="module")
def vramline(plane: ControlPlane, world: World) -> Iterator[VramlineProcess]:
    """The scheduler as a user of its own, so that its writes can be told from those of others."""
    world.add_node("n1", *[SIZE] * CARDS)
    kubeconfig = plane.issue_user("vramline", OURS, "system:masters")
    with run_scheduler(plane, kubeconfig=kubeconfig, env=RESERVES) as process:
        wait_until(lambda: process.client.get("/readyz").json().get("gpus", 0) > 0, "the cards")
        place(world, process, "warm", 10_000)
        yield process


def place(world: World, vramline: VramlineProcess, name: str, mib: int) -> float:
    """Bind a pod; return how long that took, in seconds."""
    world.create(gpu_pod(name, mib))
    pod = world.pod(name)
    wait_until(lambda: is_known(vramline.client, name), f"{name} to be known")
    began = time.perf_counter()
    assert bind(vramline.client, pod, "n1") == ""
    took = time.perf_counter() - began
    wait_until(lambda: world.request(name).get("phase") == "Succeeded", f"the record of {name}")
    return took


def is_known(client: httpx.Client, name: str) -> bool:
    return f'"{name}"' in client.get("/api/v1/pods").text or f"/{name}" in client.get("/api/v1/pods").text


def test_five_writes_for_the_first_pod_on_a_card_and_three_for_each_further_one(
    plane: ControlPlane, world: World, vramline: VramlineProcess
) -> None:
    # kubelet gives another card than was planned, which is the first that is free, by name.
    world.kubelets.choose = max
    writes = Writes(plane)
    place(world, vramline, "first", 40_000)
    wait_until(lambda: writes.of(OURS)["update bindrequests"] == 1, "the last of its writes in the log")
    first = writes.of(OURS)
    writes = Writes(plane)
    place(world, vramline, "further", 4_000)
    wait_until(lambda: writes.of(OURS)["create bindrequests"] == 1, "the last of its writes in the log")
    further = writes.of(OURS)
    sys.stdout.write(
        f"\nwrites of the first pod on a card: {dict(first)}\nof a further one: {dict(further)}\n"
    )

    assert first == {
        "create bindrequests": 1,
        "create pods": 1,
        "update gpuledgers": 1,
        "create pods/binding": 1,
        "update bindrequests": 1,
    }
    assert further == {"update gpuledgers": 1, "create pods/binding": 1, "create bindrequests": 1}


def test_the_time_from_bind_to_bound_is_printed(world: World, vramline: VramlineProcess) -> None:
    world.kubelets.choose = None
    first = [place(world, vramline, f"new-{number}", 44_000) * 1e3 for number in range(CARDS - 2)]
    further = [place(world, vramline, f"small-{number}", 100) * 1e3 for number in range(20)]
    for name, times in (("first pod on a card", first), ("further pod", further)):
        p95 = sorted(times)[int(0.95 * (len(times) - 1))]
        sys.stdout.write(f"\n{name}: p50 {statistics.median(times):.0f} ms, p95 {p95:.0f} ms\n")

    assert len(set(world.held())) == CARDS
