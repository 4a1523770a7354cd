"""kill -9 of the scheduler at each named point of a bind with reservations, and of their end.

Nothing is lost, leaked or doubled: each shared card is held once, no other is, and every bind has its end.
Each point once; `make soak` tries each twenty times (KILLS).
"""

import os
import zlib
from collections.abc import Iterator

import httpx
import pytest

from controlplane.kubelets import StandInKubelets, run_kubelets
from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import VramlineProcess
from e2e.books import read_books
from e2e.grounds import CAPACITY, QUICK, Chain, Ground, ground
from e2e.kill_points import KillPoint, Victim, Work, arm
from e2e.reservation_kill_points import RESERVATION_POINTS
from e2e.reservation_world import NAMESPACE, RESERVES, open_world
from faultproxy.proxy import FaultProxy, fault_proxy

TIMES = int(os.environ.get("KILLS", "1"))
NAMES = [f"p{number}" for number in range(CAPACITY)]
LATER = ["q0", "q1", "q2"]


@pytest.fixture(scope="module")
def kubelets(plane: ControlPlane) -> Iterator[StandInKubelets]:
    with plane.client() as admin, run_kubelets(plane) as running, open_world(admin, running):
        yield running


@pytest.fixture(scope="module")
def proxy(plane: ControlPlane, kubelets: StandInKubelets) -> Iterator[FaultProxy]:
    del kubelets
    with fault_proxy(plane) as running:
        yield running


@pytest.fixture(scope="module")
def chain(plane: ControlPlane, proxy: FaultProxy) -> Iterator[Chain]:
    schedulers = Chain(plane, proxy.kubeconfig, env={**QUICK, **RESERVES})
    yield schedulers
    schedulers.stop()


@pytest.fixture
def here(
    plane: ControlPlane, kubelets: StandInKubelets, proxy: FaultProxy, request: pytest.FixtureRequest
) -> Iterator[Ground]:
    """A node with two cards, and a namespace, of this test's own."""
    name = f"g{zlib.crc32(request.node.nodeid.encode()):x}"
    kubelets.add_node(name, f"GPU-{name}-0", f"GPU-{name}-1")
    with plane.client() as admin, ground(admin, name) as made:
        yield made
        proxy.clear()
    with plane.client() as admin:
        admin.delete(f"/api/v1/namespaces/{NAMESPACE}/pods", params={"gracePeriodSeconds": 0})


def is_dead_after(vramline: VramlineProcess, here: Ground) -> bool:
    here.report()
    here.try_all(vramline)
    return vramline.child.has_ended()


def kill(chain: Chain, proxy: FaultProxy, point: KillPoint, here: Ground) -> None:
    """Bring a scheduler to the point, and kill it there."""
    vramline = chain.leader()
    here.create(*NAMES)
    if point.work is Work.ENDS:
        here.settle(vramline)
        arm(proxy, point, Victim(vramline.child))
        here.end(*NAMES)
    else:
        arm(proxy, point, Victim(vramline.child))
    wait_until(lambda: is_dead_after(vramline, here), point.name)


def reservations_on(admin: httpx.Client, node: str) -> list[str]:
    """Return the cards that reservation pods of a node hold; one that does not tell is a question mark."""
    items = admin.get(f"/api/v1/namespaces/{NAMESPACE}/pods").json()["items"]
    here = [pod for pod in items if pod["spec"]["nodeName"] == node]
    return sorted(pod["metadata"]["annotations"].get("vramline.io/reserved-gpu", "?") for pod in here)


def what_is_wrong(here: Ground) -> list[str]:
    """Return what must not stay so."""
    here.report()
    books = read_books(here.admin)
    claimed = sorted({claim.gpu for claim in books.claims if claim.node == here.name})
    held = reservations_on(here.admin, here.name)
    wrong = books.leftovers()
    if held != claimed:
        wrong.append(f"held are {held}, claimed {claimed}")
    requests = here.admin.get("/apis/vramline.io/v1alpha1/bindrequests").json()["items"]
    phases = {each["spec"]["podUID"]: each["status"]["phase"] for each in requests}
    wrong += [f"{uid}: {phases.get(uid)}" for uid in books.pods if phases.get(uid) != "Succeeded"]
    return wrong


def converge(here: Ground) -> None:
    """Wait until nothing is wrong any more."""
    try:
        wait_until(lambda: not what_is_wrong(here), "the end of it", seconds=60.0)
    except TimeoutError as error:
        raise AssertionError(what_is_wrong(here)) from error


@pytest.mark.parametrize("time", range(TIMES))
@pytest.mark.parametrize("point", RESERVATION_POINTS, ids=[point.name for point in RESERVATION_POINTS])
def test_nothing_is_lost_leaked_or_doubled(
    point: KillPoint, time: int, chain: Chain, proxy: FaultProxy, here: Ground
) -> None:
    del time
    kill(chain, proxy, point, here)
    assert read_books(here.admin).mistakes() == []
    proxy.clear()

    here.create(*LATER[: CAPACITY - len(read_books(here.admin).pods)])
    here.settle(chain.leader())
    converge(here)

    assert read_books(here.admin).mistakes() == []
