"""A node with two cards that six pods fill exactly, and a scheduler that can be lost: the place of accidents.

There is no room to spare, so a claim that leaks keeps a pod from its card, and one that is lost or doubled
shows in the books.
"""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from controlplane.plane import ControlPlane
from controlplane.processes import Child, wait_until
from controlplane.vramline import (
    VramlineProcess,
    add_gpu_node,
    gpu_pod,
    report_cards,
    run_scheduler,
    spawn_scheduler,
)
from e2e.books import LEDGERS, REPORTS, read_books
from e2e.extender_calls import schedule, waiting_pods

__all__ = ["CAPACITY", "QUICK", "Chain", "Ground", "ground"]

CARDS = (9_200, 9_200)
ASK = 3_000
CAPACITY = 6
LEASE_S = 15
"""Not lost because the machine is busy; the next start in the same place need not wait for its end."""
QUICK = {"VRAMLINE_RELEASE_GRACE": "1s", "POD_NAME": "vramline-0"}
"""What a test waits for otherwise takes a minute, and every scheduler is a new start of the same pod."""


@dataclass(frozen=True, slots=True)
class Ground:
    """One node and one namespace of a test."""

    admin: httpx.Client
    name: str

    @property
    def pods(self) -> str:
        """Where the pods are."""
        return f"/api/v1/namespaces/{self.name}/pods"

    def create(self, *names: str) -> None:
        """Create pods."""
        for name in names:
            self.admin.post(self.pods, json=gpu_pod(name, ASK)).raise_for_status()

    def end(self, *names: str) -> None:
        """Delete pods at once."""
        for name in names:
            self.admin.delete(f"{self.pods}/{name}", params={"gracePeriodSeconds": 0}).raise_for_status()

    def report(self) -> None:
        """Say, as the agent does, that nothing runs on the cards."""
        cards = [{"totalMiB": total, "usedMiB": 0, "processes": []} for total in CARDS]
        report_cards(self.admin, self.name, cards)

    def try_all(self, vramline: VramlineProcess) -> list[str]:
        """Try to bind every pod that waits."""
        return schedule(vramline.client, waiting_pods(self.admin, self.name), [self.name])

    def goes_on(self, vramline: VramlineProcess) -> bool:
        """Do what agent and kube-scheduler do; whether no pod waits."""
        self.report()
        self.try_all(vramline)
        return not waiting_pods(self.admin, self.name)

    def is_settled(self, vramline: VramlineProcess) -> bool:
        """Go on; whether everything is bound and nothing is left over anywhere."""
        self.goes_on(vramline)
        books = read_books(self.admin)
        assert books.mistakes() == []
        return books.leftovers() == []

    def settle(self, vramline: VramlineProcess) -> None:
        """Wait until everything is bound and nothing is left over."""
        try:
            wait_until(lambda: self.is_settled(vramline), "the end of it", children=(vramline.child,))
        except TimeoutError as error:
            refusals = self.try_all(vramline)
            raise AssertionError(f"{read_books(self.admin).leftovers()} {refusals}") from error

    def clear(self) -> None:
        """Leave nothing behind."""
        self.admin.delete(self.pods, params={"gracePeriodSeconds": 0}).raise_for_status()
        for path in (LEDGERS, "/api/v1/nodes", REPORTS):
            self.admin.delete(f"{path}/{self.name}")


@contextmanager
def ground(admin: httpx.Client, name: str) -> Iterator[Ground]:
    """Make a node and a namespace of this name, and clear them away."""
    admin.post("/api/v1/namespaces", json={"metadata": {"name": name}}).raise_for_status()
    add_gpu_node(admin, name, *CARDS)
    made = Ground(admin, name)
    try:
        yield made
    finally:
        made.clear()


class Chain:
    """Schedulers of which each comes after the end of the one before."""

    def __init__(
        self, plane: ControlPlane, kubeconfig: Path, *options: str, env: Mapping[str, str] = QUICK
    ) -> None:
        self._plane = plane
        self._env = env
        self._kubeconfig = kubeconfig
        self._options = ("--lease-duration", str(LEASE_S), *options)
        self._numbers = itertools.count()
        self._running = ExitStack()
        self._now: VramlineProcess | None = None

    def leader(self) -> VramlineProcess:
        """Return the scheduler that leads; a new one if there is none or the last one is dead."""
        if self._now is None or self._now.child.has_ended():
            self.stop()
            self._now = self._running.enter_context(
                run_scheduler(
                    self._plane,
                    name=self._new_name(),
                    kubeconfig=self._kubeconfig,
                    options=self._options,
                    env=self._env,
                )
            )
        return self._now

    def spawn(self) -> Child:
        """Start a scheduler that will not get far."""
        return spawn_scheduler(
            self._plane, self._new_name(), kubeconfig=self._kubeconfig, options=self._options, env=self._env
        )

    def stop(self) -> None:
        """End the one that runs, politely."""
        self._running.close()
        self._now = None

    def _new_name(self) -> str:
        return f"vramline-{id(self)}-{next(self._numbers)}"
