"""The one line about a pod: where it went and how good that is, or how many nodes refused it and why."""

from collections.abc import Callable
from functools import partial
from typing import assert_never

import numpy as np
import numpy.typing as npt

from vramline.decide.scores import UNREACHABLE
from vramline.explain.figures import rows_of
from vramline.explain.nearness import Survey, count_codes, most_frequent, reasons_of, wants_unknown_cards
from vramline.explain.text import card_name, clip, histogram, join_names, seconds
from vramline.model.ask import PolicyName
from vramline.model.decision import Decision, DecisionWarning, Placement
from vramline.model.fleet import Fleet
from vramline.model.reason import CODE_OF, FITS, Reason, WarningCode
from vramline.units import format_mib

__all__ = ["explain_hosts", "keep_message", "warning_sentences"]

_INVENTORY_REASONS = (Reason.INVENTORY_CONFLICT, Reason.UNKNOWN_INVENTORY, Reason.FROZEN_NODE)


def keep_message(fleet: Fleet, decision: Decision, survey: Survey) -> Callable[[], str]:
    """Keep what became of the pod, to be said in one line; as short for 5,000 nodes as for 5."""
    placement = decision.placement
    if placement is None:
        return _keep_refusal(fleet, decision, survey)
    free = [int(decision.free[fleet.columns.row_of[share.uuid]]) for share in placement.gpus]
    return partial(_placed, placement, free, decision.policy, survey.fitting_nodes, survey.nodes)


def _keep_refusal(fleet: Fleet, decision: Decision, survey: Survey) -> Callable[[], str]:
    more = ""
    if wants_unknown_cards(fleet, decision.ask):
        more += f"; no node has {clip(join_names(decision.ask.constraints.use_uuids, last='or'))}"
    if decision.nominated is not None:
        released = format_mib(_releasing_where_nominated(fleet, decision, decision.nominated))
        more += f"; would fit on {decision.nominated} once {released} are released"
    detail = _keep_detail(fleet, decision, survey)
    return partial(_refused, survey.nodes, survey.counts(), survey.speaks, detail, more)


def _refused(
    nodes: int, counts: npt.NDArray[np.int64], reason: Reason | None, detail: Callable[[], str], more: str
) -> str:
    return _none_fit(nodes, reasons_of(counts), reason, detail()) + more


def explain_hosts(fleet: Fleet, codes: npt.NDArray[np.int8]) -> tuple[Reason, str]:
    """Say why a pod that asks for no GPU fits on no node; `codes` is by node number.

    Without any node the reason is NotACandidate.
    """
    here = codes[fleet.live_numbers()]
    reason = most_frequent(here) if here.any() else Reason.NOT_A_CANDIDATE
    return reason, _none_fit(len(here), reasons_of(count_codes(here)), reason, "")


def warning_sentences(warnings: tuple[DecisionWarning, ...], *, cards: int) -> list[str]:
    """Say each warning of a decision about so many cards; every sentence begins with its code."""
    return [f"{warning.code}: {_warning_text(warning, cards)}" for warning in warnings]


def _warning_text(warning: DecisionWarning, cards: int) -> str:
    match warning.code:
        case WarningCode.STRICT_WOULD_REFUSE:
            return f"{warning.gpu} has {warning.free:,} MiB free by the card, {warning.ask:,} asked"
        case WarningCode.PLACED_BY_BOOKS:
            if warning.age_s is None:
                return f"no observation of {warning.gpu}"
            return f"the observation of {warning.gpu} is {seconds(warning.age_s)} old"
        case WarningCode.NO_IDLE_GPU:
            return "the chosen GPU is not idle" if cards == 1 else f"not all {cards} chosen GPUs are idle"
        case _:
            assert_never(warning.code)


def _placed(placement: Placement, free: list[int], policy: PolicyName, fitting: int, nodes: int) -> str:
    asks = sorted({share.mib for share in placement.gpus})
    if len(placement.gpus) == 1:
        cards = f"{placement.gpus[0].uuid}, {asks[0]:,} of {free[0]:,} MiB free"
    else:
        each = format_mib(asks[0]) if len(asks) == 1 else f"{asks[0]:,} to {asks[-1]:,} MiB"
        cards = f"{len(placement.gpus)} GPUs, {each} on each, at least {format_mib(min(free))} free there"
    if fitting > 1:
        return f"{placement.node}: {cards}; best of {fitting:,} nodes by {policy}"
    return f"{placement.node}: {cards}; the only node" + (f" of {nodes:,} that fits" if nodes > 1 else "")


def _none_fit(nodes: int, counts: dict[Reason, int], reason: Reason | None, detail: str) -> str:
    if not nodes:
        return "0/0 nodes fit: there are no nodes"
    return f"0/{nodes:,} nodes fit: {histogram(counts, first=reason, detail=detail)}"


def _keep_detail(fleet: Fleet, decision: Decision, survey: Survey) -> Callable[[], str]:
    """Keep how near the nearest node came, to be said with numbers where there is one to say."""
    if survey.speaks is None:
        return str
    same = survey.nearest(1, (CODE_OF[survey.speaks],))
    if not len(same):
        return str
    nearest = int(same[0])
    name = fleet.name_of(nearest)
    if survey.speaks in _INVENTORY_REASONS:
        node = fleet.node(name)
        return partial(
            str, "" if node is None or node.problem is None else f"{name}: {clip(node.problem.detail)}"
        )
    lacking = int(survey.lacking[nearest])
    if survey.speaks is Reason.NOT_ENOUGH_GPUS:
        fitting = int(survey.fitting[nearest])
        return partial(_too_few, name, fitting, decision.ask.gpus, lacking)
    if survey.speaks in {Reason.INSUFFICIENT_VRAM, Reason.GPU_TOO_SMALL}:
        return partial(_closest, name, _nearest_card(fleet, decision, nearest), lacking)
    return str


def _too_few(node: str, fitting: int, wanted: int, lacking: int) -> str:
    return f"closest {node}, {fitting} of {wanted} GPUs fit{_short_by(lacking)}"


def _closest(node: str, card: str, lacking: int) -> str:
    return f"closest {card_name(node, card)}{_short_by(lacking)}"


def _short_by(lacking: int) -> str:
    return f", short by {format_mib(lacking)}" if 0 < lacking < UNREACHABLE else ""


def _nearest_card(fleet: Fleet, decision: Decision, number: int) -> str:
    """Return the card of a node that lacks the fewest MiB."""
    code = int(decision.node_codes[number])
    rows = rows_of(fleet, number)
    there = slice(rows.start, rows.stop)
    codes, lacking = (
        decision.row_codes[there].tolist(),
        (decision.sizes[there] - decision.free[there]).tolist(),
    )
    _, row = min((lacks, row) for row, own, lacks in zip(rows, codes, lacking, strict=True) if own == code)
    return fleet.columns.card(row).uuid


def _releasing_where_nominated(fleet: Fleet, decision: Decision, name: str) -> int:
    """Return how much is releasing on the cards of the nominated node that the ask waits for."""
    number, columns = fleet.node_number(name), fleet.columns
    waits: list[tuple[int, int]] = []
    for row in () if number is None else rows_of(fleet, number):
        short = max(0, int(decision.sizes[row] - decision.free[row]))
        releasing = columns.held_releasing if decision.observed[row] else columns.claimed_releasing
        if decision.row_codes[row] in {FITS, CODE_OF[Reason.INSUFFICIENT_VRAM]} and releasing[row] >= short:
            waits.append((short, int(releasing[row])))
    needed = None if decision.ask.constraints.numa_bind else decision.ask.gpus
    return sum(releasing for short, releasing in sorted(waits)[:needed] if short)
