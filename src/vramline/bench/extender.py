"""What an extender call costs: the real scheduler over loopback, beside one that only reads and writes.

For every pod that waits: filter with all nodes in a new order, prioritize with what the filter left, bind to
the node with the highest score, as kube-scheduler does. So the cluster changes from pod to pod, and nothing
that only helps while it stands still can help. The floor gets the same bodies and gives the same answers.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from vramline.bench.floor import serve_floor
from vramline.bench.population import Population, PopulationShape
from vramline.bench.population_objects import pod_objects
from vramline.bench.processes import (
    Caller,
    ServerProcess,
    look,
    stand_in_server,
    start_scheduler,
    start_server,
    wait_for,
)
from vramline.errors import TransientError
from vramline.telemetry.metrics import Gauge

__all__ = ["CallFigures", "ExtenderFigures", "measure_extender"]

_WARM_UP = 100
"""Pods that are placed before anything counts: a scheduler runs for days, and sees every template often."""

Report = Callable[[int, int], None]
_Side = tuple[ServerProcess, Caller]


class CallFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of call."""

    p50_ms: float
    p99_ms: float
    """From sending the request to having the whole answer."""
    cpu_ms: float
    """Mean CPU time of the process that answers, all its threads."""


class ExtenderFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One size of cluster."""

    nodes: int
    gpus_per_node: int
    claims: int
    calls: int
    placed: int
    filter: CallFigures
    prioritize: CallFigures
    bind: CallFigures
    floor: CallFigures
    """Of filter's bodies."""
    prioritize_floor: CallFigures
    filter_over_floor: float
    prioritize_over_floor: float
    rss_mib: float
    """Of the scheduler, at the end."""
    start_s: float
    """From the start of the process to its first answer."""


@dataclass(slots=True)
class _Times:
    """What calls of one kind took."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def figures(self) -> CallFigures:
        wall = np.array(self.wall or [0.0]) * 1_000
        return CallFigures(
            p50_ms=round(float(np.percentile(wall, 50)), 3),
            p99_ms=round(float(np.percentile(wall, 99)), 3),
            cpu_ms=round(1_000 * sum(self.cpu) / max(1, len(self.cpu)), 3),
        )


class _Answer(msgspec.Struct, rename="pascal"):
    node_names: list[str] | None = None
    error: str = ""


class _Score(msgspec.Struct, rename="pascal"):
    host: str
    score: int


_READ_FILTER = msgspec.json.Decoder(_Answer)
_READ_SCORES = msgspec.json.Decoder(list[_Score])


def measure_extender(shape: PopulationShape, *, progress: Report) -> ExtenderFigures:
    """Place the pods of `shape` that wait, one after the other, and say what the calls took."""
    population = Population(shape)
    with (
        stand_in_server(shape) as stand_in,
        start_server(serve_floor) as floor,
        start_scheduler(stand_in) as scheduler,
    ):
        began = time.monotonic()
        wait_for(lambda: _is_ready(scheduler), scheduler, "the scheduler")
        start_s = time.monotonic() - began
        wait_for(lambda: _leads(scheduler), scheduler, "the election")  # before it, nothing is bound
        with Caller(scheduler) as to_scheduler, Caller(floor) as to_floor:
            run = _Run(population, (scheduler, to_scheduler), (floor, to_floor))
            run.place_all(progress)
            return run.figures(start_s=round(start_s, 2))


class _Run:
    """One scheduler, its floor, and what was measured."""

    def __init__(self, population: Population, scheduler: _Side, floor: _Side) -> None:
        self._population = population
        self._scheduler, self._floor = scheduler, floor
        self._times = {
            name: _Times() for name in ("filter", "prioritize", "bind", "floor", "prioritize_floor")
        }
        self._placed = 0

    def place_all(self, progress: Report) -> None:
        names, chance = self._population.names, random.Random(7)  # noqa: S311 — a benchmark, not a secret
        pods = list(pod_objects(self._population))[self._population.shape.pods :]
        for number, pod in enumerate(pods):
            chance.shuffle(names)
            if number == min(_WARM_UP, len(pods) // 3):
                self._times = {name: _Times() for name in self._times}
                self._placed = 0
            self._place(pod, names)
            progress(number + 1, len(pods))

    def _place(self, pod: dict[str, Any], names: list[str]) -> None:
        asked = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})
        filtered = self._call("filter", self._scheduler, "/filter", asked)
        left = _READ_FILTER.decode(filtered)
        if left.error:
            raise TransientError(f"the filter says: {left.error}")
        weighed = None
        if left.node_names:
            asked_again = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": left.node_names})
            weighed = self._call("prioritize", self._scheduler, "/prioritize", asked_again)
            self._bind(pod, _READ_SCORES.decode(weighed))
        self._floor[1].post("/expect-filter", filtered)
        self._call("floor", self._floor, "/filter", asked)
        if weighed is not None:
            self._floor[1].post("/expect-prioritize", weighed)
            self._call("prioritize_floor", self._floor, "/prioritize", asked_again)

    def _bind(self, pod: dict[str, Any], scores: list[_Score]) -> None:
        best = max(scores, key=lambda each: each.score)
        meta = pod["metadata"]
        told = {
            "PodName": meta["name"],
            "PodNamespace": meta["namespace"],
            "PodUID": meta["uid"],
            "Node": best.host,
        }
        answer = self._call("bind", self._scheduler, "/bind", msgspec.json.encode(told))
        if not _READ_FILTER.decode(answer).error:
            self._placed += 1

    def _call(self, kind: str, side: _Side, path: str, body: bytes) -> bytes:
        server, caller = side
        cpu, wall = server.cpu_s(), time.perf_counter()
        status, answer = caller.post(path, body)
        times = self._times[kind]
        times.wall.append(time.perf_counter() - wall)
        times.cpu.append(server.cpu_s() - cpu)
        if status != 200:
            raise TransientError(f"{path} answers {status}: {answer[:200].decode(errors='replace')}")
        return answer

    def figures(self, *, start_s: float) -> ExtenderFigures:
        done = {name: times.figures() for name, times in self._times.items()}
        shape = self._population.shape
        return ExtenderFigures(
            nodes=shape.nodes,
            gpus_per_node=shape.gpus,
            claims=shape.pods,
            calls=len(self._times["filter"].wall),
            placed=self._placed,
            **done,
            filter_over_floor=_ratio(done["filter"], done["floor"]),
            prioritize_over_floor=_ratio(done["prioritize"], done["prioritize_floor"]),
            rss_mib=self._scheduler[0].rss_mib(),
            start_s=start_s,
        )


def _ratio(call: CallFigures, floor: CallFigures) -> float:
    return round(call.cpu_ms / floor.cpu_ms, 2) if floor.cpu_ms else 0.0


def _is_ready(scheduler: ServerProcess) -> bool | None:
    return True if look(scheduler, "/readyz").get("status") == "ready" else None


def _leads(scheduler: ServerProcess) -> bool | None:
    with Caller(scheduler) as caller:
        return True if f"{Gauge.LEADING.metric} 1.0\n".encode() in caller.read("/metrics") else None
