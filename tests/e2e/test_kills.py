"""kill -9 of the scheduler at named points: nothing is lost, leaked or doubled.

Each point once; `make soak` tries each twenty times (KILLS).
"""

import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest

from controlplane.plane import ControlPlane
from controlplane.processes import free_port, wait_until
from controlplane.vramline import VramlineProcess, apply_crds, extender_configuration
from e2e.books import read_books
from e2e.extender_calls import waiting_pods
from e2e.grounds import CAPACITY, Chain, Ground, ground
from e2e.kill_points import POINTS, KillPoint, Victim, Work, arm
from faultproxy.faults import Hold, Moment
from faultproxy.proxy import FaultProxy, fault_proxy

TIMES = int(os.environ.get("KILLS", "1"))
NAMES = [f"p{number}" for number in range(CAPACITY)]
LATER = ["q0", "q1", "q2"]


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        apply_crds(client)
        yield client


@pytest.fixture(scope="module")
def proxy(plane: ControlPlane, admin: httpx.Client) -> Iterator[FaultProxy]:
    admin.get("/version").raise_for_status()
    with fault_proxy(plane) as running:
        yield running


@pytest.fixture(scope="module")
def chain(plane: ControlPlane, proxy: FaultProxy) -> Iterator[Chain]:
    schedulers = Chain(plane, proxy.kubeconfig)
    yield schedulers
    schedulers.stop()


@pytest.fixture
def here(admin: httpx.Client, proxy: FaultProxy, request: pytest.FixtureRequest) -> Iterator[Ground]:
    """A node and a namespace of this test's own."""
    with ground(admin, f"g{zlib.crc32(request.node.nodeid.encode()):x}") as made:
        yield made
    proxy.clear()


def kill_at_start(chain: Chain, proxy: FaultProxy, point: KillPoint) -> None:
    chain.stop()
    victim = Victim()
    arm(proxy, point, victim)
    victim.child = chain.spawn()
    wait_until(victim.child.has_ended, point.name)


def kill_while_binding(chain: Chain, proxy: FaultProxy, point: KillPoint, here: Ground) -> None:
    vramline = chain.leader()
    if point.path != "/gpuledgers$":
        here.create(NAMES[0])
        here.settle(vramline)
    here.create(*NAMES[1:])
    arm(proxy, point, Victim(vramline.child))
    wait_until(lambda: is_dead_after_trying(vramline, here), point.name)


def kill_while_pods_end(chain: Chain, proxy: FaultProxy, point: KillPoint, here: Ground) -> None:
    vramline = chain.leader()
    here.create(*NAMES)
    here.settle(vramline)
    arm(proxy, point, Victim(vramline.child))
    here.end(*NAMES[:3])
    wait_until(lambda: is_dead_after_report(vramline, here), point.name)


@pytest.mark.parametrize("time", range(TIMES))
@pytest.mark.parametrize("point", POINTS, ids=[point.name for point in POINTS])
def test_nothing_is_lost_leaked_or_doubled(
    point: KillPoint, time: int, chain: Chain, proxy: FaultProxy, here: Ground
) -> None:
    del time
    match point.work:
        case Work.START:
            here.create(*NAMES[:3])
            here.settle(chain.leader())
            kill_at_start(chain, proxy, point)
        case Work.BINDS:
            kill_while_binding(chain, proxy, point, here)
        case Work.ENDS:
            kill_while_pods_end(chain, proxy, point, here)
    assert read_books(here.admin).mistakes() == []
    proxy.clear()

    here.create(*LATER[: CAPACITY - len(read_books(here.admin).pods)])
    here.settle(chain.leader())

    assert len(read_books(here.admin).pods) == CAPACITY


@pytest.mark.parametrize("time", range(TIMES))
def test_a_binding_that_lands_after_the_successor_leads_harms_nobody(
    time: int, chain: Chain, proxy: FaultProxy, here: Ground
) -> None:
    del time
    vramline = chain.leader()
    here.create(*NAMES)
    held = Hold()
    proxy.add(held, method="POST", path="/binding$")
    seen = len(proxy.asked)
    with ThreadPoolExecutor(1) as kube_scheduler:
        trying = kube_scheduler.submit(here.try_all, vramline)
        try:
            assert held.arrived.wait(60.0)
            late = next(asked for asked in proxy.asked[seen:] if asked.path.endswith("/binding"))
            Victim(vramline.child).kill()
            trying.result(60.0)
            here.settle(chain.leader())
        finally:
            held.let_go.set()
    wait_until(lambda: late.code != 0, "the answer to the late binding")

    assert late.code == httpx.codes.CONFLICT
    assert here.is_settled(chain.leader())


@pytest.mark.parametrize("moment", list(Moment))
def test_a_successor_killed_while_it_takes_a_promise_back_leaves_that_to_the_next(
    moment: Moment, chain: Chain, proxy: FaultProxy, here: Ground
) -> None:
    here.create(*NAMES)
    (unkept,) = [point for point in POINTS if point.name == "a binding, before it is sent"]
    for point in (unkept, KillPoint("the fence", Work.BINDS, "PATCH", "/status$", moment)):
        vramline = chain.leader()
        arm(proxy, point, Victim(vramline.child))
        wait_until(lambda: is_dead_after_trying(vramline, here), point.name)  # noqa: B023 — called here alone
        assert read_books(here.admin).mistakes() == []

    here.settle(chain.leader())


def test_a_burst_through_kube_scheduler_survives_kills(
    plane: ControlPlane, proxy: FaultProxy, chain: Chain, admin: httpx.Client
) -> None:
    chain.stop()
    port = free_port()
    schedulers = Chain(plane, proxy.kubeconfig, "--listen", f"127.0.0.1:{port}")
    backoff = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
    with ExitStack() as stack:
        stack.callback(schedulers.stop)
        grounds = [stack.enter_context(ground(admin, f"burst-{number}")) for number in range(5)]
        schedulers.leader()
        child = plane.start_scheduler(extender_configuration(port) | backoff)
        stack.callback(child.stop)
        for each in grounds:
            each.create(*NAMES)
        for point in POINTS:
            if point.work is Work.BINDS and point.moment is Moment.COMMITTED:
                vramline = schedulers.leader()
                arm(proxy, point, Victim(vramline.child))
                wait_until(lambda: vramline.child.has_ended() or not waits(grounds), point.name)  # noqa: B023 — called here alone
                proxy.clear()
                assert read_books(admin).mistakes() == []
        schedulers.leader()
        wait_until(lambda: is_all_bound(grounds), "thirty pods")

        assert read_books(admin).mistakes() == []


def is_dead_after_trying(vramline: VramlineProcess, here: Ground) -> bool:
    here.try_all(vramline)
    return vramline.child.has_ended()


def is_dead_after_report(vramline: VramlineProcess, here: Ground) -> bool:
    here.report()
    return vramline.child.has_ended()


def waits(grounds: list[Ground]) -> bool:
    return any(waiting_pods(each.admin, each.name) for each in grounds)


def is_all_bound(grounds: list[Ground]) -> bool:
    """Report like the agents, so that nothing is refused for the age of what is known."""
    for each in grounds:
        each.report()
    return read_books(grounds[0].admin).leftovers() == []
