"""Sixty pods come and go while the way to the API server goes wrong: the books agree, and all is bound.

Counts stay below what makes waits long: what is tested is what is right afterwards.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest

from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import VramlineProcess, apply_crds
from e2e.books import read_books
from e2e.grounds import CAPACITY, Chain, Ground, ground
from faultproxy.faults import (
    Cut,
    Delay,
    Fault,
    Refuse,
    StaleAnswer,
    SwallowAnswer,
    cut_after,
    duplicate,
    end_with_gone,
)
from faultproxy.proxy import FaultProxy, fault_proxy

FIRST = [f"p{number}" for number in range(CAPACITY)]
SECOND = [f"q{number}" for number in range(CAPACITY)]
WRITES = {
    "a claim": ("POST", "/gpuledgers$"),
    "another claim": ("PUT", "/gpuledgers/"),
    "a binding": ("POST", "/binding$"),
    "a fence": ("PATCH", "/status$"),
}


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
def grounds(admin: httpx.Client, proxy: FaultProxy, request: pytest.FixtureRequest) -> Iterator[list[Ground]]:
    """Five nodes with room for thirty pods."""
    number = [item.nodeid for item in request.session.items].index(request.node.nodeid)
    with ExitStack() as stack:
        yield [stack.enter_context(ground(admin, f"g{number}-{place}")) for place in range(5)]
    proxy.clear()


def break_writes(proxy: FaultProxy, fault: Fault, times: int = 5) -> None:
    """Let the fault befall the next writes of every kind."""
    for method, path in WRITES.values():
        proxy.add(fault, method=method, path=path, times=times)


def break_watches(proxy: FaultProxy, fault: Fault, times: int = 8) -> None:
    """Let the fault befall the next watches, and begin them now."""
    proxy.add(fault, query="watch=true", times=times)
    proxy.cut_all()


def lose_requests(proxy: FaultProxy) -> None:
    break_writes(proxy, Cut())
    break_writes(proxy, Delay(0.3))


def refuse(proxy: FaultProxy) -> None:
    for code in (409, 429, 500, 503):
        break_writes(proxy, Refuse(code), times=3)


def lose_answers(proxy: FaultProxy) -> None:
    break_writes(proxy, SwallowAnswer())


def time_out(proxy: FaultProxy) -> None:
    """Keep one binding and one claim waiting until the scheduler gives them up."""
    proxy.add(SwallowAnswer(hang=True), method="POST", path="/binding$")
    proxy.add(SwallowAnswer(hang=True), method="PUT", path="/gpuledgers/")


def confuse_watches(proxy: FaultProxy) -> None:
    break_watches(proxy, duplicate())
    break_watches(proxy, cut_after(12))


def forget_versions(proxy: FaultProxy) -> None:
    break_watches(proxy, end_with_gone(b'"type":"(MODIFIED|DELETED)"'))


def list_the_past(proxy: FaultProxy) -> None:
    """Refuse watches that begin with everything, so that lists are read, and answer some with old ones."""
    proxy.add(Refuse(400), query="sendInitialEvents", times=100)
    proxy.add(StaleAnswer(), method="GET", path="/(gpuledgers|pods)$", query="^limit=", times=6)
    break_watches(proxy, end_with_gone(b'"type":"(ADDED|MODIFIED|DELETED)"'), times=12)


def break_everything(proxy: FaultProxy) -> None:
    for fault in (Refuse(409), Refuse(429), Refuse(503), SwallowAnswer(), Cut(), Delay(0.3)):
        break_writes(proxy, fault, times=1)
    break_watches(proxy, duplicate(), times=4)
    break_watches(proxy, cut_after(5), times=4)


CASES: dict[str, Callable[[FaultProxy], None]] = {
    "requests lost or late": lose_requests,
    "409, 429, 500, 503": refuse,
    "answers lost": lose_answers,
    "lines twice or broken off": confuse_watches,
    "versions forgotten": forget_versions,
    "everything at once": break_everything,
    "lists of the past": list_the_past,
}


@pytest.mark.parametrize("inject", CASES.values(), ids=CASES.keys())
def test_the_books_agree_and_all_is_bound(
    inject: Callable[[FaultProxy], None], chain: Chain, proxy: FaultProxy, grounds: list[Ground]
) -> None:
    come_and_go(chain.leader(), grounds, lambda: inject(proxy), lambda: inject(proxy))

    assert len(read_books(grounds[0].admin).pods) == len(grounds) * CAPACITY


def test_writes_that_happened_and_were_never_answered_are_found(
    chain: Chain, proxy: FaultProxy, grounds: list[Ground]
) -> None:
    come_and_go(chain.leader(), grounds, proxy.clear, lambda: time_out(proxy))

    assert len(read_books(grounds[0].admin).pods) == len(grounds) * CAPACITY


def come_and_go(
    vramline: VramlineProcess, grounds: list[Ground], first: Callable[[], None], then: Callable[[], None]
) -> None:
    """Bind thirty pods, end them and bind thirty more, under faults of a kind each."""
    for each in grounds:
        each.create(*FIRST)
    first()
    settle(vramline, grounds)
    for each in grounds:
        each.end(*FIRST)
        each.create(*SECOND)
    then()
    settle(vramline, grounds)


def settle(vramline: VramlineProcess, grounds: list[Ground]) -> None:
    """Go on as agents and kube-scheduler do until everything is bound and nothing is left over."""

    def all_bound() -> bool:
        with ThreadPoolExecutor(len(grounds)) as pool:
            bound = list(pool.map(lambda each: each.goes_on(vramline), grounds))
        assert read_books(grounds[0].admin).mistakes() == []
        return all(bound)

    wait_until(all_bound, "all bound", children=(vramline.child,))
    grounds[0].settle(vramline)
