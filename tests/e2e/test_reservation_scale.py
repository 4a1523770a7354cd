"""Many pods on many nodes beside NVIDIA's device plugin: real control plane, stand-in kubelets.

Each kubelet gives any free device, and rejects what it has none for. The figures are printed (`pytest -s`):
writes by the API server's own log, times of /bind as the scheduler counts them. Small here; `make soak` runs
it with RESERVATION_NODES=200 nodes of eight cards and RESERVATION_PODS=500 pods.
"""

import os
import random
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from controlplane.kubelets import run_kubelets
from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import VramlineProcess, extender_configuration, gpu_pod, run_scheduler
from e2e.audited import Writes
from e2e.books import read_books
from e2e.reservation_world import RESERVES, World, open_world

pytestmark = pytest.mark.audited

NODES = int(os.environ.get("RESERVATION_NODES", "5"))
PODS = int(os.environ.get("RESERVATION_PODS", "24"))
APART_S = float(os.environ.get("RESERVATION_APART_S", "0.1"))
"""From one pod to the next."""
THREADS = 8
"""How many play the kubelets: one alone would have pods wait for what it writes for others."""
CARDS, SIZE = 8, 46_068
OURS = "vramline-under-test"
REQUESTS = "/apis/vramline.io/v1alpha1/bindrequests"
BUCKET = re.compile(
    r'^vramline_verb_seconds_bucket\{.*le="(?P<up_to>[^"]+)".*\} (?P<calls>\S+)$', re.MULTILINE
)


@pytest.fixture(scope="module")
def world(plane: ControlPlane) -> Iterator[World]:
    with ExitStack() as stack:
        kubelets = [stack.enter_context(run_kubelets(plane)) for _ in range(min(NODES, THREADS))]
        opened = stack.enter_context(open_world(stack.enter_context(plane.client()), kubelets[0]))
        for number in range(NODES):
            opened.kubelets = kubelets[number % len(kubelets)]
            opened.add_node(f"n{number}", *[SIZE] * CARDS)
        yield opened


@pytest.fixture(scope="module")
def vramline(plane: ControlPlane, world: World) -> Iterator[VramlineProcess]:
    """The scheduler as a user of its own, so that its writes can be told from those of others."""
    del world
    kubeconfig = plane.issue_user("vramline", OURS, "system:masters")
    with run_scheduler(plane, kubeconfig=kubeconfig, env=RESERVES) as process:
        cards = NODES * CARDS
        wait_until(lambda: process.client.get("/readyz").json().get("gpus", 0) == cards, "the cards")
        plane.start_scheduler(extender_configuration(process.port))
        yield process


def time_of_bind(vramline: VramlineProcess, share: float) -> float:
    """Return, in milliseconds, within which time this share of all calls of /bind was answered."""
    told = [line for line in vramline.client.get("/metrics").text.splitlines() if 'verb="bind"' in line]
    buckets = [(float(each["up_to"]), float(each["calls"])) for each in BUCKET.finditer("\n".join(told))]
    wanted, before, below = share * buckets[-1][1], 0.0, 0.0
    for up_to, calls in buckets:
        if calls >= wanted:
            return 1e3 * (below + (up_to - below) * (wanted - before) / (calls - before))
        before, below = calls, up_to
    return float("inf")


def has_come(moment: float) -> bool:
    return bool(time.monotonic() >= moment)


def how_many_wait(world: World) -> int:
    items = world.admin.get("/api/v1/namespaces/default/pods").json()["items"]
    return sum("nodeName" not in pod["spec"] for pod in items)


def are_recorded(world: World) -> bool:
    items = world.admin.get(REQUESTS).json()["items"]
    return len([each for each in items if each["status"]["phase"] == "Succeeded"]) == PODS


def test_all_pods_get_cards_that_are_held_and_what_it_cost_is_printed(
    plane: ControlPlane, world: World, vramline: VramlineProcess
) -> None:
    sizes = random.Random(1)
    writes, began = Writes(plane), time.monotonic()
    for number in range(PODS):
        wait_until(partial(has_come, began + number * APART_S), "the time of the next pod")
        world.create(gpu_pod(f"p{number}", sizes.choice([4_000, 8_000, 16_000, 40_000])))
    wait_until(lambda: not how_many_wait(world), "all pods to be bound", seconds=120.0 + PODS)
    took = time.monotonic() - began
    wait_until(lambda: are_recorded(world), "all records", seconds=60.0)
    wait_until(lambda: writes.of(OURS)["create pods/binding"] == PODS, "the last write in the log")

    books, counted = read_books(world.admin), writes.of(OURS)
    claimed = {claim.gpu for claim in books.claims}
    sys.stdout.write(
        f"\n{PODS} pods on {len(claimed)} cards of {NODES} nodes in {took:.1f} s;"
        f" /bind p50 {time_of_bind(vramline, 0.5):.0f} ms, p95 {time_of_bind(vramline, 0.95):.0f} ms\n"
        f"writes a pod: {counted.total() / PODS:.2f}; {dict(counted)}\n"
    )
    assert books.mistakes() == []
    assert books.leftovers() == []
    wait_until(lambda: set(world.held()) == claimed, "exactly the cards in use to be held", seconds=60.0)
    assert len(world.held()) == len(claimed)
    for uid, pod in books.pods.items():
        told = pod["metadata"]["annotations"]["vramline.io/visible-devices"]
        assert [claim.gpu for claim in books.claims if claim.pod_uid == uid] == [told]
