"""Everything that one decision was made on, so that it can be made again: elsewhere, later, bit for bit.

A case holds nodes, claims and observations by reference: keeping one costs little, writing it down does not.
"""

import dataclasses
import lzma
from collections.abc import Iterable

import msgspec
import numpy as np
import numpy.typing as npt

from vramline.decide.engine import decide
from vramline.decide.prospects import Prospects, know_prospects, known_prospects
from vramline.errors import RequestError
from vramline.explain.decision import explain_decision
from vramline.explain.history import DecisionRecord, PodOutcome
from vramline.model.ask import Ask
from vramline.model.claim import Claim
from vramline.model.columns import CardKind, GpuColumns
from vramline.model.decision import Decision
from vramline.model.fleet import Fleet
from vramline.model.host import HostColumns
from vramline.model.mix import AskClass, Mix
from vramline.model.node import Node
from vramline.model.observation import Observation
from vramline.model.rules import Rules
from vramline.units import Mib

__all__ = [
    "JOURNAL_FORMAT",
    "MOST_CARDS",
    "Case",
    "Question",
    "decide_again",
    "decode_cases",
    "encode_cases",
    "take_case",
]

JOURNAL_FORMAT = 2
"""How cases are written down; another number cannot be read."""

MOST_CARDS = 256
"""In a larger fleet only decisions about one node are taken down."""

Codes = npt.NDArray[np.int8]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked, beside the state: how to decide, and how to explain."""

    ask: Ask
    rules: Rules
    at: float
    most_nodes: int | None
    why: bool


class _Array(msgspec.Struct, frozen=True):
    """An array of numbers, exactly."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One decision's state and question. Nodes are in the order of their numbers."""

    question: Question
    margin: Mib
    nodes: tuple[Node, ...]
    claims: tuple[Claim, ...]
    observations: tuple[tuple[str, Observation], ...]
    generation: int
    ledger_version: int
    is_picture: bool
    """Whether only one node was looked at."""
    kinds: tuple[CardKind, ...]
    prospects: dict[str, _Array | float] | None
    """How the policy saw the pods to come; None: it did not look ahead."""
    counts: tuple[tuple[AskClass, int], ...]
    typical: tuple[tuple[AskClass, int], ...]
    hosts: tuple[tuple[int, int, int], ...] | None
    """CPU, memory and pod places left on each node; None: nobody counted them."""
    requests: tuple[tuple[str, dict[str, Mib]], ...] = ()
    """What pods requested of machines whose GPU takes from their memory, by node."""
    candidates: bytes | None
    """By node, with which code somebody else had refused it; None: all nodes were open."""

    @property
    def cards(self) -> int:
        """How many cards it holds on to."""
        return sum(len(node.gpus) for node in self.nodes)


class _Kept(msgspec.Struct, frozen=True):
    case: Case
    record: DecisionRecord


def take_case(fleet: Fleet, question: Question, candidates: Codes | None) -> Case:
    """Take down what a decision is made on, right after it was made; `fleet` must not have changed since."""
    nodes = sorted(fleet.nodes, key=lambda node: fleet.node_number(node.name) or 0)
    numbers = [fleet.node_number(node.name) or 0 for node in nodes]
    cards = [gpu.uuid for node in nodes for gpu in node.gpus]
    looks = ((uuid, fleet.observation(uuid)) for uuid in cards)
    hosts = fleet.hosts
    return Case(
        question=question,
        margin=fleet.margin,
        nodes=tuple(nodes),
        claims=tuple(fleet.ledger),
        observations=tuple((uuid, look) for uuid, look in looks if look is not None),
        generation=fleet.generation,
        ledger_version=fleet.ledger.version,
        is_picture=fleet.is_picture,
        kinds=tuple(fleet.columns.kinds),
        prospects=_write_prospects(fleet),
        counts=() if fleet.is_picture else tuple(fleet.mix.counts.items()),
        typical=() if fleet.is_picture else fleet.mix.typical,
        hosts=None
        if hosts is None
        else tuple(
            (int(hosts.cpu_milli[number]), int(hosts.memory_bytes[number]), int(hosts.pods[number]))
            for number in numbers
        ),
        requests=tuple((n.name, dict(asked)) for n in nodes if (asked := fleet.requests_on(n.name))),
        candidates=None if candidates is None else candidates[numbers].tobytes(),
    )


def decide_again(case: Case) -> DecisionRecord:
    """Make the decision again, from nothing but the case."""
    fleet, question = _rebuild(case), case.question
    candidates = None if case.candidates is None else np.frombuffer(case.candidates, dtype=np.int8)
    decision = decide(fleet, question.ask, question.rules, now=question.at, candidates=candidates)
    explanation = explain_decision(
        fleet,
        decision,
        question.rules,
        most_nodes=question.most_nodes,
        why=question.why,
        candidates=candidates,
    )
    placed = decision.placement
    return DecisionRecord(
        at=decision.at,
        pod=question.ask.pod,
        pod_uid=question.ask.pod_uid,
        outcome=_outcome_of(decision),
        node=None if placed is None else placed.node,
        gpus=() if placed is None else placed.gpus,
        explanation=explanation,
    )


def encode_cases(kept: Iterable[tuple[Case, DecisionRecord]]) -> bytes:
    """Write cases down, with what was decided; equal parts of different cases cost next to nothing."""
    packed = msgspec.msgpack.encode([_Kept(case, record) for case, record in kept])
    return lzma.compress(packed, preset=1)


def decode_cases(data: bytes, *, subject: str) -> list[tuple[Case, DecisionRecord]]:
    """Read cases again; `RequestError` for what is cut off, changed, or of another version."""
    try:
        kept = msgspec.msgpack.decode(lzma.decompress(data), type=list[_Kept])
    except (lzma.LZMAError, EOFError, ValueError) as error:
        raise RequestError(
            subject=subject,
            field="journal.cases",
            problem=f"cannot be read ({error}); the file was cut off or changed, or another version wrote it",
        ) from None
    return [(each.case, each.record) for each in kept]


def _outcome_of(decision: Decision) -> PodOutcome:
    return PodOutcome.PENDING if decision.placement is None else PodOutcome.BOUND


def _rebuild(case: Case) -> Fleet:
    columns = GpuColumns()
    columns.know_kinds(case.kinds)
    fleet = Fleet(case.margin, columns)
    fleet.is_picture = case.is_picture
    for node in case.nodes:
        fleet.set_node(node)
    for name, requests in case.requests:
        fleet.set_requests(name, requests)
    fleet.adopt(case.claims)
    for uuid, look in case.observations:
        fleet.show(uuid, look)
    if case.hosts is not None:
        fleet.hosts = HostColumns(max(1, len(case.hosts)))
        for number, (cpu, memory, pods) in enumerate(case.hosts):
            fleet.hosts.cpu_milli[number] = cpu
            fleet.hosts.memory_bytes[number] = memory
            fleet.hosts.pods[number] = pods
    if not case.is_picture:
        fleet.mix = Mix(dict(case.counts))
        fleet.mix.typical = case.typical
    _read_prospects(fleet, case)
    fleet.generation, fleet.ledger.version = case.generation, case.ledger_version
    return fleet


def _write_prospects(fleet: Fleet) -> dict[str, _Array | float] | None:
    seen = known_prospects(fleet)
    if seen is None:
        return None
    figures: dict[str, _Array | float] = {}
    for field in (each for each in dataclasses.fields(seen) if each.init):
        value = getattr(seen, field.name)
        is_array = isinstance(value, np.ndarray)
        figures[field.name] = (
            _Array(value.dtype.str, value.shape, value.tobytes()) if is_array else float(value)
        )
    return figures


def _read_prospects(fleet: Fleet, case: Case) -> None:
    if case.prospects is None:
        return
    values = {
        name: np.frombuffer(value.data, dtype=value.dtype).reshape(value.shape)
        if isinstance(value, _Array)
        else value
        for name, value in case.prospects.items()
    }
    know_prospects(fleet, Prospects(**values))  # type: ignore[arg-type]  # as it was written
