"""Two replicas: one binds, the other takes over, and a leader that slept through it does no harm."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import httpx
import pytest

from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import VramlineProcess, apply_crds, run_scheduler
from e2e.books import read_books
from e2e.extender_calls import bind, filter_nodes, waiting_pods
from e2e.grounds import CAPACITY, QUICK, Ground, ground
from faultproxy.faults import Hold
from faultproxy.proxy import FaultProxy, fault_proxy

SHORT_S, LONG_S = 5, 60
"""A lease whose end a test waits for, but longer than a busy machine makes a leader wait; one that lasts."""
NAMES = [f"p{number}" for number in range(CAPACITY)]
LEASES = "/apis/coordination.k8s.io/v1/namespaces/vramline-system/leases"


@dataclass(frozen=True, slots=True)
class Replica:
    """A scheduler, and the proxy between it and the API server."""

    process: VramlineProcess
    proxy: FaultProxy


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        apply_crds(client)
        yield client


@contextmanager
def run_replicas(
    plane: ControlPlane, lease: str, *options: str, lease_s: int = SHORT_S
) -> Iterator[list[Replica]]:
    """Run two replicas, each in a pod of its own."""
    given = ["--lease", f"vramline-system/{lease}", "--lease-duration", str(lease_s), *options]
    with ExitStack() as stack:
        replicas = []
        for place in ("a", "b"):
            proxy = stack.enter_context(fault_proxy(plane))
            process = run_scheduler(
                plane,
                name=f"{lease}-{place}",
                kubeconfig=proxy.kubeconfig,
                leads=False,
                options=given,
                env=QUICK | {"POD_NAME": place},
            )
            replicas.append(Replica(stack.enter_context(process), proxy))
        yield replicas


@pytest.fixture(scope="module")
def replicas(plane: ControlPlane, admin: httpx.Client) -> Iterator[list[Replica]]:
    admin.get("/version").raise_for_status()
    with run_replicas(plane, "pair") as running:
        yield running


@pytest.fixture
def here(admin: httpx.Client, replicas: list[Replica], request: pytest.FixtureRequest) -> Iterator[Ground]:
    """A node and a namespace that both replicas know."""
    name = f"g{[item.nodeid for item in request.session.items].index(request.node.nodeid)}"
    with ground(admin, name) as made:
        for replica in replicas:
            wait_until(lambda: knows(replica.process, name), f"{name} to be known")  # noqa: B023 — called here alone
        yield made


def knows(process: VramlineProcess, node: str) -> bool:
    return any(gpu["node"] == node for gpu in process.client.get("/api/v1/gpus").json()["gpus"])


def leader_and_follower(replicas: list[Replica]) -> tuple[Replica, Replica]:
    """Wait until exactly one leads."""
    wait_until(lambda: sum(each.process.leads() for each in replicas) == 1, "one leader")
    first, second = replicas
    return (first, second) if first.process.leads() else (second, first)


def test_only_one_binds_and_the_other_answers_from_what_it_knows(
    here: Ground, replicas: list[Replica]
) -> None:
    leader, follower = leader_and_follower(replicas)
    here.create("pod")
    (pod,) = waiting_pods(here.admin, here.name)
    wait_until(lambda: bind(follower.process.client, pod, here.name) != no_such(pod), "the pod to be known")

    assert filter_nodes(follower.process.client, pod, [here.name]) == [here.name]
    assert bind(follower.process.client, pod, here.name) == "this replica does not lead"
    here.settle(leader.process)


@pytest.mark.parametrize("write", ["/binding$", "/gpuledgers"], ids=["a binding", "a claim"])
@pytest.mark.parametrize("settled", [False, True], ids=["before the other acts", "after all is bound"])
def test_what_a_leader_had_sent_before_it_slept_conflicts_with_nothing(
    write: str, settled: bool, here: Ground, replicas: list[Replica]
) -> None:
    sleeper, other = leader_and_follower(replicas)
    here.create(*NAMES)
    held = Hold()
    sleeper.proxy.add(held, path=write, method="POST")
    with ThreadPoolExecutor(1) as kube_scheduler:
        trying = kube_scheduler.submit(here.try_all, sleeper.process)
        try:
            assert held.arrived.wait(60.0)
            sleeper.process.child.signal(signal.SIGSTOP)
            wait_until(other.process.leads, "the other to take over")
            if settled:
                here.settle(other.process)
        finally:
            held.let_go.set()
            sleeper.process.child.signal(signal.SIGCONT)
        trying.result(60.0)

    assert read_books(here.admin).mistakes() == []
    wait_until(lambda: not sleeper.process.leads(), "the sleeper to see that it no longer leads")
    leader, _ = leader_and_follower(replicas)
    here.settle(leader.process)


def test_a_leader_that_wakes_up_and_goes_on_binding_is_refused(here: Ground, replicas: list[Replica]) -> None:
    sleeper, other = leader_and_follower(replicas)
    sleeper.process.child.signal(signal.SIGSTOP)
    try:
        wait_until(other.process.leads, "the other to take over")
        here.create(*NAMES)
        with ThreadPoolExecutor(1) as kube_scheduler:
            trying = kube_scheduler.submit(here.try_all, sleeper.process)
            here.settle(other.process)
            sleeper.process.child.signal(signal.SIGCONT)
            refusals = trying.result(60.0)
    finally:
        sleeper.process.child.signal(signal.SIGCONT)

    assert len(refusals) >= 1
    assert read_books(here.admin).mistakes() == []


def test_a_leader_that_stops_hands_over_long_before_its_lease_would_end(
    plane: ControlPlane, admin: httpx.Client
) -> None:
    admin.get("/version").raise_for_status()
    with run_replicas(plane, "patient", lease_s=LONG_S) as pair:
        leader, follower = leader_and_follower(pair)
        leader.process.child.stop()

        wait_until(follower.process.leads, "the follower", seconds=LONG_S * 2 / 3)


def test_vramline_leads_where_kube_scheduler_leads(plane: ControlPlane, admin: httpx.Client) -> None:
    follow = ("--follow-lease", "vramline-system/kube-scheduler")
    with run_replicas(plane, "beside", *follow, lease_s=LONG_S) as (a, b):
        wait_until(lambda: all(each.process.client.get("/healthz").is_success for each in (a, b)), "both")
        hold_lease(admin, "b_1234")
        wait_until(b.process.leads, "b")
        hold_lease(admin, "a_5678")
        wait_until(a.process.leads, "a")

        assert not b.process.leads()
        hold_lease(admin, "b_9abc")
        wait_until(b.process.leads, "b again")
        assert not a.process.leads()


def no_such(pod: dict[str, dict[str, str]]) -> str:
    meta = pod["metadata"]
    return f"no pod {meta['namespace']}/{meta['name']} with UID {meta['uid']}"


def hold_lease(admin: httpx.Client, holder: str) -> None:
    """Write kube-scheduler's Lease as it would itself."""
    lease = {"metadata": {"name": "kube-scheduler"}, "spec": {"holderIdentity": holder}}
    if admin.get(f"{LEASES}/kube-scheduler").is_success:
        headers = {"Content-Type": "application/merge-patch+json"}
        admin.patch(f"{LEASES}/kube-scheduler", json=lease, headers=headers).raise_for_status()
    else:
        admin.post(LEASES, json=lease).raise_for_status()
