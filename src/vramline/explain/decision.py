"""From a decision to an explanation: the pod's reason, one line, and the arithmetic per node and card.

To be called while the fleet still is as the decision saw it; for a pod that was placed that is before
its reservation is recorded.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from vramline.decide.terms import ScoreTerm, keep_terms
from vramline.errors import InvariantError
from vramline.explain.counterfactuals import Counterfactual, find_counterfactuals
from vramline.explain.lines import NodeLine, keep_lines
from vramline.explain.message import explain_hosts, keep_message, warning_sentences
from vramline.explain.nearness import Survey
from vramline.model.ask import PolicyName, RealtimeMode
from vramline.model.decision import Decision, DecisionWarning
from vramline.model.fleet import Fleet
from vramline.model.reason import Reason
from vramline.model.rules import Rules

__all__ = [
    "Alternative",
    "Explanation",
    "SealedDecision",
    "explain_decision",
    "explain_hosts",
    "seal_decision",
]

_ALTERNATIVES = 5
"""How many fitting nodes are listed with their scores."""


class Alternative(msgspec.Struct, frozen=True):
    """A node that fits, its score, and what the score is made of."""

    node: str
    score: int
    terms: list[ScoreTerm] = []
    """Their points add up to the score."""


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
    sealed = seal_decision(fleet, decision, rules, most_nodes=most_nodes, why=why, candidates=candidates)
    return sealed.explanation


class SealedDecision:
    """A decision with all that was true when it was made; it is put into words when somebody asks."""

    __slots__ = ("_brief", "_kept", "_lines", "_terms", "_whole")

    def __init__(
        self,
        kept: "_Kept",
        lines: Callable[[], list[NodeLine]],
        terms: Callable[[], list[list[ScoreTerm]]],
    ) -> None:
        self._kept = kept
        self._lines = lines
        self._terms = terms
        self._brief: Explanation | None = None
        self._whole: Explanation | None = None

    @property
    def brief(self) -> Explanation:
        """The explanation without its nodes and without the terms of scores."""
        if self._brief is None:
            self._brief = _write_brief(self._kept)
        return self._brief

    @property
    def explanation(self) -> Explanation:
        """All of it."""
        if self._whole is None:
            pairs = zip(self.brief.alternatives, self._terms(), strict=True)
            self._whole = msgspec.structs.replace(
                self.brief,
                nodes=self._lines(),
                alternatives=[Alternative(each.node, each.score, terms) for each, terms in pairs],
            )
            self._lines = self._terms = list  # what they hold on to is not needed any more
        return self._whole


def seal_decision(
    fleet: Fleet,
    decision: Decision,
    rules: Rules,
    *,
    most_nodes: int | None = 20,
    why: bool = True,
    candidates: npt.NDArray[np.int8] | None = None,
) -> SealedDecision:
    """Keep all that `explain_decision` would say; the fleet may change afterwards."""
    if fleet.generation != decision.generation:
        raise InvariantError(
            f"the decision on {decision.ask.pod} is about generation {decision.generation} of the fleet,"
            f" which is at {fleet.generation}"
        )
    survey = Survey(fleet, decision)
    lines = keep_lines(fleet, decision, survey.first(most_nodes)) if most_nodes != 0 else list
    best = survey.best(_ALTERNATIVES)
    kept = _Kept(
        survey.speaks,
        keep_message(fleet, decision, survey),
        find_counterfactuals(fleet, decision, rules, candidates=candidates) if why else [],
        [fleet.name_of(number) for number in best.tolist()],
        decision.scores.take(best),
        decision.warnings,
        decision.ask.gpus,
        decision.nominated,
        decision.mode,
        decision.policy,
        decision.ledger_version,
        decision.generation,
    )
    return SealedDecision(kept, lines, keep_terms(fleet, decision, best) if len(best) else list)


class _Kept(NamedTuple):
    """What was found out about a decision, and what is kept of the decision itself: all but its arrays."""

    reason: Reason | None
    message: Callable[[], str]
    counterfactuals: list[Counterfactual]
    names: list[str]
    """Of the best nodes."""
    scores: npt.NDArray[np.int64]
    warnings: tuple[DecisionWarning, ...]
    cards: int
    nominated: str | None
    mode: RealtimeMode
    policy: PolicyName
    ledger_version: int
    generation: int


def _write_brief(kept: _Kept) -> Explanation:
    scores: list[int] = kept.scores.tolist()
    return Explanation(
        reason=kept.reason,
        message=kept.message(),
        warnings=warning_sentences(kept.warnings, cards=kept.cards),
        nodes=[],
        nominated=kept.nominated,
        counterfactuals=kept.counterfactuals,
        alternatives=list(map(Alternative, kept.names, scores)),
        lead=scores[0] - scores[1] if len(scores) > 1 else None,
        mode=kept.mode,
        policy=kept.policy,
        ledger_version=kept.ledger_version,
        generation=kept.generation,
    )
