"""From a decision to an explanation: the pod's reason, one line, and the arithmetic per node and card.

To be called while the fleet still is as the decision saw it; for a pod that was placed that is before
its reservation is recorded.
"""

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from vramline.errors import InvariantError
from vramline.explain.counterfactuals import Counterfactual, find_counterfactuals
from vramline.explain.figures import Basis, age_at, figures_at, reserved_on, rows_of
from vramline.explain.message import explain_hosts, message_of, warning_sentences
from vramline.explain.nearness import Survey, survey_nodes
from vramline.model.ask import PolicyName, RealtimeMode
from vramline.model.columns import NO_LIMIT
from vramline.model.decision import Decision
from vramline.model.fleet import Fleet
from vramline.model.reason import REASON_OF, Reason
from vramline.model.rules import Rules

__all__ = [
    "Alternative",
    "CardLine",
    "Explanation",
    "NodeLine",
    "explain_decision",
    "explain_hosts",
    "node_line",
]

_ALTERNATIVES = 5
"""How many fitting nodes are listed with their scores."""


class CardLine(msgspec.Struct, frozen=True, kw_only=True):
    """What the ask met on one card. MiB; `usable − margin − held − unmanaged == free`, always."""

    uuid: str
    reason: Reason | None
    """The first rule that refused the card; None: it fits."""
    ask_mib: int
    """What the ask means on this card: a share of it is a number here."""
    usable_mib: int
    held_mib: int
    releasing_mib: int
    """Part of `held_mib`."""
    reserved_mib: int = 0
    """Part of `held_mib`: reserved in advance, for pods that are yet to come."""
    unmanaged_mib: int | None
    """None by the books: nobody looked, or the mode does not count it."""
    margin_mib: int
    free_mib: int
    short_mib: int
    """What is lacking; 0 where memory is not the reason."""
    basis: Basis
    observed_age_s: float | None
    """Age of the last look at the card; None: there was none."""
    model: str
    slots_left: int | None
    """How many more pods may share the card; None: no such limit."""
    cores_left: int
    """Percent of the card's compute that is not claimed."""


class NodeLine(msgspec.Struct, frozen=True, kw_only=True):
    """What the ask met on one node."""

    node: str
    fits: bool
    reason: Reason | None
    detail: str = ""
    """What is wrong with the node's inventory, in its own words."""
    gpus: list[CardLine]
    score: int | None
    """Higher is better; only for nodes that fit, comparable only within one decision."""


class Alternative(msgspec.Struct, frozen=True):
    """A node that fits, and its score."""

    node: str
    score: int


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod is where it is, or why it is nowhere and what would change that."""

    reason: Reason | None
    """None: it was placed."""
    message: str
    warnings: list[str]
    nodes: list[NodeLine]
    """Fitting nodes best first, then the nearest misses."""
    nominated: str | None
    """A node where it would fit once releasing memory is free; a hint, never a promise."""
    counterfactuals: list[Counterfactual]
    alternatives: list[Alternative]
    """The best fitting nodes, best first."""
    lead: int | None
    """By how much the best score beats the second; None: there is no second."""
    mode: RealtimeMode
    policy: PolicyName
    ledger_version: int
    generation: int


def explain_decision(
    fleet: Fleet,
    decision: Decision,
    rules: Rules,
    *,
    most_nodes: int | None = 20,
    why: bool = True,
    candidates: npt.NDArray[np.int8] | None = None,
) -> Explanation:
    """Turn a decision into an explanation.

    `rules` and `candidates` are what `decide` was given. At most `most_nodes` nodes are listed (None:
    all). `why=False` leaves out the counterfactuals, each of which costs at least one more decision.
    Raises `InvariantError` when the fleet has changed since the decision was made.
    """
    if fleet.generation != decision.generation:
        raise InvariantError(
            f"the decision on {decision.ask.pod} is about generation {decision.generation} of the fleet,"
            f" which is at {fleet.generation}"
        )
    survey = survey_nodes(fleet, decision)
    alternatives = list(_alternatives(fleet, decision, survey))
    return Explanation(
        reason=survey.speaks,
        message=message_of(fleet, decision, survey),
        warnings=warning_sentences(decision),
        nodes=[node_line(fleet, decision, int(number)) for number in survey.numbers[:most_nodes]],
        nominated=decision.nominated,
        counterfactuals=find_counterfactuals(fleet, decision, rules, candidates=candidates) if why else [],
        alternatives=alternatives,
        lead=alternatives[0].score - alternatives[1].score if len(alternatives) > 1 else None,
        mode=decision.mode,
        policy=decision.policy,
        ledger_version=decision.ledger_version,
        generation=decision.generation,
    )


def _alternatives(fleet: Fleet, decision: Decision, survey: Survey) -> Iterator[Alternative]:
    for number in survey.numbers[: min(survey.fitting_nodes, _ALTERNATIVES)]:
        yield Alternative(fleet.name_of(number), int(decision.scores[number]))


def node_line(fleet: Fleet, decision: Decision, number: int) -> NodeLine:
    """Say what the ask met on one node."""
    name = fleet.name_of(number)
    node = fleet.node(name)
    reason = REASON_OF.get(int(decision.node_codes[number]))
    rows = rows_of(fleet, number)
    return NodeLine(
        node=name,
        fits=reason is None,
        reason=reason,
        detail="" if node is None or node.problem is None else node.problem.detail,
        gpus=[_card_line(fleet, decision, row) for row in rows],
        score=int(decision.scores[number]) if reason is None else None,
    )


def _card_line(fleet: Fleet, decision: Decision, row: int) -> CardLine:
    """Say what the ask met on one card."""
    columns = fleet.columns
    gpu = columns.card(row)
    figures = figures_at(fleet, row, observed=bool(decision.observed[row]))
    ask, slots_left = int(decision.sizes[row]), int(columns.slots_left[row])
    return CardLine(
        uuid=gpu.uuid,
        reason=REASON_OF.get(int(decision.row_codes[row])),
        ask_mib=ask,
        usable_mib=figures.usable,
        held_mib=figures.held,
        releasing_mib=figures.releasing,
        reserved_mib=reserved_on(fleet, gpu.uuid),
        unmanaged_mib=figures.unmanaged,
        margin_mib=figures.margin,
        free_mib=figures.free,
        short_mib=max(0, ask - figures.free),
        basis=figures.basis,
        observed_age_s=age_at(fleet, row, now=decision.at),
        model=gpu.model,
        slots_left=None if slots_left == NO_LIMIT else slots_left,
        cores_left=int(columns.cores_left[row]),
    )
