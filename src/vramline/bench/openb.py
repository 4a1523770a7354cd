"""The public GPU-sharing trace, replayed through the product's own decide on the embedded cluster.

The trace and its protocol: Weng et al., "Beware of Fragmentation", USENIX ATC 2023; `openb` in Alibaba's
cluster-trace-gpu-v2023. One pod at a time, in a given order: it is placed if any node can take it, else
dropped. Nobody leaves, nothing is moved, nobody looks at pods to come. A card is 1,000 thousandths, a share
so many of them; whole cards are asked for as 1,000.
"""

import gc
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path

import msgspec

from vramline.bench.decide import peak_rss_mib
from vramline.bench.openb_trace import WHOLE, Trace, TracePod
from vramline.errors import RequestError
from vramline.explain.decision import SealedDecision
from vramline.explain.history import DecisionRecord, History, PodOutcome
from vramline.model.ask import Ask, Constraints, MibSize, PolicyName
from vramline.model.gpu import PhysicalGpu
from vramline.model.mix import AskClass, Mix
from vramline.model.node import HostRoom, Node
from vramline.model.pod import HostNeeds, Pod
from vramline.model.rules import Rules
from vramline.simulate.cluster import EmbeddedCluster
from vramline.units import Mib

__all__ = ["LogLine", "OpenbReport", "replay", "replay_in_turns", "write_lines"]

_LEVELS = (80, 90, 100, 110, 120, 130)
_TURN = 50
"""Pods that come to one cluster before it is the other's turn."""
_MIB = 2**20


class OpenbReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came out. `alloc` is the part of all GPU memory in use, in percent, at so much demand."""

    variant: str
    seed: int
    policy: PolicyName
    nodes: int
    alloc: dict[str, float | None]
    """None: the demand of the trace does not come to that."""
    rejected: dict[str, int]
    decisions: int
    per_s: float
    """Decisions in a second of CPU time."""
    cpu_s: float
    p50_us: float
    p99_us: float
    peak_rss_mib: int
    tracing_percent: float | None = None
    """What tracing adds to the CPU time of deciding alone; None: that was not measured."""


class LogLine(msgspec.Struct, frozen=True):
    """What became of one pod; `gpus` are the cards' places on the node."""

    i: int
    pod: str
    node: str | None
    gpus: list[int]


def replay(  # noqa: PLR0913 — what is replayed, how, and who hears of it
    trace: Trace,
    *,
    variant: str,
    seed: int,
    policy: PolicyName,
    trace_decisions: bool = True,
    learns: bool = False,
    tell: Callable[[LogLine], None] = lambda _line: None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> OpenbReport:
    """Place the pods one by one; `tell` hears what became of each.

    With `trace_decisions` every decision is explained and kept for whoever asks, as the product does. How
    often each kind of pod comes is known from the list of pods, as published, or learnt from those that came.
    """
    run = _Run(trace, policy, trace_decisions=trace_decisions, learns=learns)
    with _spared_collector():
        for number in range(len(trace.order)):
            tell(run.place(number))
            if number % 500 == 0:
                progress(number, len(trace.order))
    progress(len(trace.order), len(trace.order))
    return run.report(variant, seed)


def replay_in_turns(  # noqa: PLR0913 — as `replay`
    trace: Trace,
    *,
    variant: str,
    seed: int,
    policy: PolicyName,
    learns: bool = False,
    tell: Callable[[LogLine], None] = lambda _line: None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> OpenbReport:
    """Place the pods with tracing, and on a second cluster without, to tell what tracing adds.

    The two take turns, so that a machine that is slower for a while is so for both.
    """
    traced, untraced = (_Run(trace, policy, trace_decisions=each, learns=learns) for each in (True, False))
    with _spared_collector():
        for turn, start in enumerate(range(0, len(trace.order), _TURN)):
            progress(start, len(trace.order))
            numbers = range(start, min(start + _TURN, len(trace.order)))
            # Nobody is always the one that finds the caches cold.
            for run in (traced, untraced) if turn % 2 else (untraced, traced):
                lines = [run.place(number) for number in numbers]
                for line in lines if run is traced else ():
                    tell(line)
    progress(len(trace.order), len(trace.order))
    more = sum(traced.count.took) / sum(untraced.count.took) - 1
    return msgspec.structs.replace(traced.report(variant, seed), tracing_percent=round(100 * more, 1))


class _Run:
    """A cluster to which the pods of a trace come, and what is counted of it."""

    def __init__(
        self, trace: Trace, policy: PolicyName, *, trace_decisions: bool, learns: bool = False
    ) -> None:
        self._trace = trace
        self.cluster = _build_cluster(trace, policy)
        self.cluster.explains = trace_decisions
        if not learns:
            self.cluster.fleet.mix = Mix(Counter(_class_of(pod) for pod in trace.pods))
        self.count = _Count(capacity=WHOLE * sum(node.gpus for node in trace.nodes))

    def place(self, number: int) -> LogLine:
        """Let a pod come, by its number in the order of arrival."""
        return _place(self.cluster, self._trace.pods[self._trace.order[number]], number, self.count)

    def report(self, variant: str, seed: int) -> OpenbReport:
        """Tell what came out."""
        count, took = self.count, sorted(self.count.took)
        return OpenbReport(
            variant=variant,
            seed=seed,
            policy=self.cluster.rules.policy,
            nodes=len(self._trace.nodes),
            alloc={str(level): count.mean_at(level) for level in _LEVELS},
            rejected={kind: count.rejected[kind] for kind in ("cpu", "share", "one", "multi")},
            decisions=len(took),
            per_s=round(1e9 * len(took) / max(sum(took), 1), 1),
            cpu_s=round(sum(took) / 1e9, 2),
            p50_us=round(took[len(took) // 2] / 1e3, 1),
            p99_us=round(took[len(took) * 99 // 100] / 1e3, 1),
            peak_rss_mib=peak_rss_mib(),
        )


def write_lines(path: Path, lines: Iterable[LogLine]) -> None:
    """Write a log, one JSON object a line."""
    try:
        path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    except OSError as error:
        raise RequestError(subject=str(path), problem=f"cannot be written ({error.strerror})") from None


@contextmanager
def _spared_collector() -> Iterator[None]:
    """Look for garbage as seldom as the scheduler does, and not in what is there already."""
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


@dataclass(slots=True)
class _Count:
    """What was asked for and given so far, in thousandths of a card."""

    capacity: int
    arrived: int = 0
    used: int = 0
    used_at: dict[int, list[int]] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    took: list[int] = field(default_factory=list)
    history: History = field(default_factory=History)

    def tried(self, pod: TracePod, *, placed: bool) -> None:
        self.arrived += pod.gpus * pod.milli
        if placed:
            self.used += pod.gpus * pod.milli
        else:
            self.rejected[pod.kind] += 1
        level = math.floor(100 * self.arrived / self.capacity + 0.5)
        self.used_at.setdefault(level, []).append(self.used)

    def mean_at(self, level: int) -> float | None:
        """Return the allocation, averaged over all events whose demand rounds to this percentage."""
        seen = self.used_at.get(level)
        return round(100 * sum(seen) / len(seen) / self.capacity, 2) if seen else None


def _build_cluster(trace: Trace, policy: PolicyName) -> EmbeddedCluster:
    cluster = EmbeddedCluster(Rules(policy=policy), clock=lambda: 0.0, margin=Mib(0))
    for node in sorted(trace.nodes, key=attrgetter("rank")):  # an API server lists nodes by name, too
        name = f"{node.rank:05d}-{node.name}"
        cards = tuple(
            PhysicalGpu(
                uuid=f"{name}/{place:02d}", node=name, index=place, model=node.model, total=Mib(WHOLE)
            )
            for place in range(node.gpus)
        )
        room = HostRoom(cpu_milli=node.cpu_milli, memory_bytes=node.memory_mib * _MIB)
        cluster.set_node(Node(name=name, gpus=cards, host=room))
    return cluster


def _class_of(pod: TracePod) -> AskClass:
    if not pod.gpus:
        return AskClass(cpu_milli=pod.cpu_milli)
    return AskClass(
        cpu_milli=pod.cpu_milli, gpus=pod.gpus, size=MibSize(Mib(pod.milli)), use_models=pod.models
    )


def _place(cluster: EmbeddedCluster, pod: TracePod, number: int, count: _Count) -> LogLine:
    """Time the whole decision: what is asked, decided, explained and recorded."""
    uid = f"{number}"
    needs = HostNeeds(cpu_milli=pod.cpu_milli, memory_bytes=pod.memory_mib * _MIB)
    ask = None
    if pod.gpus:
        ask = Ask(
            pod=f"openb/{pod.name}",
            pod_uid=uid,
            gpus=pod.gpus,
            size=MibSize(Mib(pod.milli)),
            cpu_milli=pod.cpu_milli,
            constraints=Constraints(use_models=pod.models),
        )
    cluster.add_pod(Pod(namespace="openb", name=f"{pod.name}-{number}", uid=uid, ask=ask, host=needs))
    started = time.process_time_ns()
    outcome = cluster.place(uid, most_nodes=5, why=False)
    if outcome.sealed is not None:
        count.history.add_later(outcome.pod.key, uid, partial(_record, outcome.sealed, uid, outcome.node))
    count.took.append(time.process_time_ns() - started)
    count.tried(pod, placed=outcome.node is not None)
    if outcome.node is None:
        cluster.delete_pod(uid)
        return LogLine(number, pod.name, None, [])
    cards = [int(share.uuid.rpartition("/")[2]) for share in outcome.gpus]
    return LogLine(number, pod.name, outcome.node.partition("-")[2], cards)


def _record(sealed: SealedDecision, uid: str, node: str | None) -> DecisionRecord:
    """Write a decision down, when somebody asks."""
    outcome = PodOutcome.PENDING if node is None else PodOutcome.BOUND
    return DecisionRecord(
        at=0.0, pod=uid, pod_uid=uid, outcome=outcome, node=node, explanation=sealed.explanation
    )
