"""`make bench-recovery`: how long after kill -9 the next start answers rightly, leads, and binds.

Right means that every card is known and every claim counts: the filter leaves exactly the nodes that have
room. Times count from the start of the process, Python's own start included.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import httpx

from controlplane.commands import obtain_commands
from controlplane.plane import ControlPlane, control_plane
from controlplane.processes import Child, free_port, wait_until
from controlplane.throughput.populate import GPUS_PER_NODE, add_nodes
from controlplane.vramline import apply_crds, gpu_pod, spawn_scheduler
from e2e.extender_calls import Document, bind, filter_nodes, waiting_pods

WHOLE_MIB = 45_900
FULL_NODES = 5
PODS = "/api/v1/namespaces/default/pods"


def main() -> int:
    """Measure at each size and print one line of JSON for each start."""
    parser = argparse.ArgumentParser(prog="make bench-recovery", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1_000])
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    for count in options.nodes:
        with control_plane(obtain_commands()) as plane, plane.client() as admin:
            apply_crds(admin)
            add_nodes(plane.folder / "admin.kubeconfig", count)
            for figures in Recovery(plane, admin, count).measure(options.times):
                sys.stdout.write(json.dumps({"nodes": count, **figures}) + "\n")
                sys.stdout.flush()
    return 0


class Recovery:
    """One cluster, some of whose nodes are full, and schedulers that die."""

    def __init__(self, plane: ControlPlane, admin: httpx.Client, count: int) -> None:
        self._plane = plane
        self._admin = admin
        self._names = [f"gpu-node-{number:05d}" for number in range(count)]
        self._port = free_port()
        self._vramline = httpx.Client(base_url=f"http://127.0.0.1:{self._port}", timeout=60.0)

    def measure(self, times: int) -> Iterator[dict[str, float]]:
        """Fill some nodes, then kill and start anew so many times."""
        child = self._spawn("first")
        for number in range(FULL_NODES * GPUS_PER_NODE):
            pod = self._create(f"pod-{number}")
            self._wait(child, lambda: self._binds(pod, self._names[number // GPUS_PER_NODE]))  # noqa: B023 — called here alone
        for number in range(times):
            pod = self._create(f"probe-{number}")
            child.signal(signal.SIGKILL)
            wait_until(child.has_ended, "its end")
            began = time.perf_counter()
            child = self._spawn(f"start-{number}")
            took = {}
            for name, is_so in (("right_s", self._is_right), ("bound_s", self._can_bind)):
                self._wait(child, lambda: is_so(pod))  # noqa: B023 — called here alone
                took[name] = round(time.perf_counter() - began, 2)
            self._admin.delete(f"{PODS}/{pod['metadata']['name']}", params={"gracePeriodSeconds": 0})
            yield took
        child.stop()
        self._vramline.close()

    def _spawn(self, name: str) -> Child:
        listen = ["--listen", f"127.0.0.1:{self._port}"]
        return spawn_scheduler(self._plane, name, options=listen, env={"POD_NAME": "vramline-0"})

    def _create(self, name: str) -> Document:
        self._admin.post(PODS, json=gpu_pod(name, WHOLE_MIB)).raise_for_status()
        return next(pod for pod in waiting_pods(self._admin, "default") if pod["metadata"]["name"] == name)

    def _wait(self, child: Child, is_so: Callable[[], bool]) -> None:
        def holds() -> bool:
            with suppress(httpx.TransportError):
                return is_so()
            return False

        wait_until(holds, child.name, children=(child,))

    def _binds(self, pod: Document, node: str) -> bool:
        return bind(self._vramline, pod, node) == ""

    def _is_right(self, pod: Document) -> bool:
        return filter_nodes(self._vramline, pod, self._names) == self._names[FULL_NODES:]

    def _can_bind(self, pod: Document) -> bool:
        return self._binds(pod, self._names[-1])


if __name__ == "__main__":
    sys.exit(main())
