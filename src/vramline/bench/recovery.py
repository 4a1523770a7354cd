"""How long a scheduler that starts anew needs until it decides rightly.

`vramline scheduler` is started as a user would start it, against a stand-in for the API server that holds a
busy cluster. It is asked again and again where four pods could go, and the clock stops at the first time that
all four answers are exactly what the cluster's books and cards come to, worked out here beforehand: one ask
that a single card in the whole cluster can hold, one that none can, and two that many can.
"""

import compileall
import http.client
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

import vramline
from vramline.bench.peaks import PeakOfChildren
from vramline.bench.population import RARE_MIB, Population, PopulationShape
from vramline.bench.population_objects import asking_pod
from vramline.bench.processes import Caller, ServerProcess, look, stand_in_server, start_scheduler, wait_for
from vramline.wire import keys

__all__ = ["RecoveryFigures", "StartFigures", "measure_recovery"]

_ASKS = ((RARE_MIB, 1), (RARE_MIB, 2), (30_000, 1), (12_000, 4))
"""MiB and number of cards."""


class StartFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One start."""

    right_s: float
    """From the start of the process, Python's own included, to the first right decision."""
    after_data_s: float
    """How much of that after the stand-in had handed over the last object."""
    cpu_s: float
    """CPU time of the scheduler up to the right decision."""
    beside_s: float
    """CPU time of the process that lists beside it, until it ends."""
    peak_rss_mib: float
    beside_peak_rss_mib: float
    """Of the process beside it; what both hold together counts for both."""
    wrong: int
    """Decisions before that which were not right. There must be none: until it knows, it says so."""


class RecoveryFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Several starts against one cluster; the first figures are the medians."""

    nodes: int
    gpus_per_node: int
    pods: int
    right_s: float
    after_data_s: float
    cpu_s: float
    peak_rss_mib: float
    beside_peak_rss_mib: float
    wrong: int
    starts: list[StartFigures]


class _Answer(msgspec.Struct, rename="pascal"):
    node_names: list[str] | None = None


_READ = msgspec.json.Decoder(_Answer)


def measure_recovery(
    shape: PopulationShape, *, starts: int, progress: Callable[[int, int], None]
) -> RecoveryFigures:
    """Start the scheduler so many times, each time to be killed, and say how long it took."""
    compileall.compile_dir(Path(vramline.__file__).parent, quiet=2)  # as an installed package is
    population = Population(shape)
    questions = [_question(population, mib, gpus) for mib, gpus in _ASKS]
    done = []
    with stand_in_server(shape) as stand_in:
        for number in range(starts):
            done.append(_measure_start(stand_in, questions))
            progress(number + 1, starts)
    return RecoveryFigures(
        nodes=shape.nodes,
        gpus_per_node=shape.gpus,
        pods=shape.pods,
        right_s=_median([each.right_s for each in done]),
        after_data_s=_median([each.after_data_s for each in done]),
        cpu_s=_median([each.cpu_s for each in done]),
        peak_rss_mib=max(each.peak_rss_mib for each in done),
        beside_peak_rss_mib=max(each.beside_peak_rss_mib for each in done),
        wrong=sum(each.wrong for each in done),
        starts=done,
    )


def _measure_start(stand_in: ServerProcess, questions: list["_Question"]) -> StartFigures:
    began = time.monotonic()
    with start_scheduler(stand_in) as scheduler:
        wrong = [0]
        with PeakOfChildren(scheduler.pid) as beside:
            wait_for(lambda: _is_right(scheduler, questions, wrong), scheduler, "the scheduler")
        right_at, cpu_s = time.monotonic(), scheduler.cpu_s()
        sent_at = look(stand_in, "/sent")["sentAt"]
        return StartFigures(
            right_s=round(right_at - began, 2),
            after_data_s=round(right_at - sent_at, 2),
            cpu_s=round(cpu_s, 2),
            beside_s=scheduler.ended_children_cpu_s(),
            peak_rss_mib=scheduler.peak_rss_mib(),
            beside_peak_rss_mib=beside.mib,
            wrong=wrong[0],
        )


class _Question(msgspec.Struct, frozen=True):
    """The body of a filter call, and which nodes are to be left."""

    body: bytes
    right: frozenset[str]


def _question(population: Population, mib: int, gpus: int) -> _Question:
    pod = asking_pod(10**8 + mib + gpus, {keys.VRAM: str(mib), keys.GPUS: str(gpus)})
    body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": population.names})
    return _Question(body, frozenset(population.nodes_with(mib, gpus)))


def _is_right(scheduler: ServerProcess, questions: list[_Question], wrong: list[int]) -> bool | None:
    """Whether every answer is exactly right; None: not yet. Counts answers that are not."""
    with Caller(scheduler) as caller:
        for question in questions:
            status, answer = caller.post("/filter", question.body)
            if status != http.client.OK:
                return None
            if frozenset(_READ.decode(answer).node_names or ()) != question.right:
                wrong[0] += 1
                return None
    return True


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
