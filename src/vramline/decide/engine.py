"""The one `decide()`: sizes → look → filters → scores → pick, for production, simulator and benchmark."""

import numpy as np
import numpy.typing as npt

from vramline.decide.filters import refuse_cards, refuse_nodes, shortfall
from vramline.decide.idle import idle_cards
from vramline.decide.pick import pick_cards, pick_node, pick_waiting_node
from vramline.decide.prospects import can_look_ahead
from vramline.decide.realtime import Look, look_at_cards, prefer
from vramline.decide.scores import TIER, UNREACHABLE, card_costs, chosen_cost, node_costs, with_tiers
from vramline.decide.sizes import size_on_each_card
from vramline.decide.weighing import THINKS_AHEAD, weigh_blocks
from vramline.model.ask import Ask, PolicyName, RealtimeMode
from vramline.model.columns import NEVER
from vramline.model.decision import Decision, DecisionWarning, Placement
from vramline.model.fleet import Fleet
from vramline.model.pod import GpuShare
from vramline.model.reason import FITS, WarningCode
from vramline.model.rules import Rules
from vramline.units import Mib

__all__ = ["decide"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]


def decide(fleet: Fleet, ask: Ask, rules: Rules, *, now: float, candidates: Codes | None = None) -> Decision:
    """Say where `ask` goes, or why it goes nowhere. Changes nothing; same input, same answer.

    `rules.mode` is already the mode in force for this pod. `candidates` is by node number: FITS, or the
    code with which somebody (kube-scheduler, host rules) refused the node already; None: all nodes.
    The ask's own policies win over `rules.policy`.
    """
    columns = fleet.columns
    policy = ask.node_policy or rules.policy
    sizes = size_on_each_card(columns, ask.size, unsized_is_whole=rules.unsized_is_whole)
    look = look_at_cards(columns, rules, now=now)
    row_codes = refuse_cards(look, ask, sizes)
    short = shortfall(sizes, look.free)
    node_codes = refuse_nodes(columns, ask, row_codes, short, _open_nodes(fleet, candidates))
    costs, by_node = _cost_cards_and_nodes(fleet, look, ask, sizes, row_codes, policy)
    scores = _score_nodes(fleet, by_node)
    number = pick_node(fleet, node_codes, scores)
    rows: list[int] = []
    nominated: int | None = None
    if number is not None:
        rows = pick_cards(columns, fleet.block_of(number), ask, row_codes, costs)
    else:
        releasing = np.where(look.observed, columns.held_releasing, columns.claimed_releasing)
        nominated = pick_waiting_node(fleet, ask, row_codes, node_codes, (short, releasing))
    return Decision(
        ask=ask,
        mode=_mode_of(fleet, look, rows),
        policy=policy,
        at=now,
        generation=fleet.generation,
        ledger_version=fleet.ledger.version,
        placement=_placement(fleet, number, rows, sizes, ask),
        nominated=None if nominated is None else fleet.name_of(nominated),
        row_codes=row_codes,
        node_codes=node_codes,
        scores=scores,
        sizes=sizes,
        free=look.free,
        observed=look.observed,
        warnings=_warnings(look, policy, rows, sizes),
    )


def _mode_of(fleet: Fleet, look: Look, rows: list[int]) -> RealtimeMode:
    """Return the mode by which the node was judged that was chosen, or that was the only one."""
    if rows:
        return look.mode_at(rows[0])
    return look.mode_at(0) if fleet.node_count == 1 and len(look.columns) else look.rules.mode


def _cost_cards_and_nodes(
    fleet: Fleet, look: Look, ask: Ask, sizes: Ints, row_codes: Codes, policy: PolicyName
) -> tuple[Ints, Ints]:
    """Return what each card costs by row, and each node by block, tiers of preference included.

    A policy that thinks ahead takes the tightest cards as long as it knows too little of what is asked for.
    """
    columns, tiers = look.columns, prefer(look, sizes) * TIER
    card_policy = ask.gpu_policy or policy
    if policy in THINKS_AHEAD and can_look_ahead(fleet):
        weighed = weigh_blocks(fleet, ask, policy, look.free, sizes, row_codes == FITS)
        by_card = (
            weighed.rows if card_policy is policy and ask.gpus == 1 else card_costs(look, card_policy, sizes)
        )
        chosen = chosen_cost(columns, ask, row_codes, tiers + by_card)
        return tiers + by_card, with_tiers(chosen, weighed.blocks)
    by_card = tiers + card_costs(look, card_policy, sizes)
    chosen = chosen_cost(columns, ask, row_codes, by_card)
    if policy in THINKS_AHEAD:
        return by_card, chosen
    return by_card, with_tiers(chosen, node_costs(fleet, look, ask, policy, sizes))


def _open_nodes(fleet: Fleet, candidates: Codes | None) -> Codes:
    """Join what the fleet says of its nodes with what the caller says; the caller was first."""
    codes = fleet.node_codes()
    return codes if candidates is None else np.where(candidates == FITS, codes, candidates)


def _score_nodes(fleet: Fleet, costs: Ints) -> Ints:
    """Return the score of each node by number: the negative of its block's cost."""
    scores = np.full(fleet.node_count, -UNREACHABLE, dtype=np.int64)
    nodes = fleet.columns.node_of_block
    scores[nodes[nodes >= 0]] = -costs[nodes >= 0]
    return scores


def _placement(fleet: Fleet, number: int | None, rows: list[int], sizes: Ints, ask: Ask) -> Placement | None:
    if number is None:
        return None
    shares = []
    for row in rows:
        gpu = fleet.columns.card(row)
        shares.append(GpuShare(gpu.uuid, Mib(int(sizes[row])), ask.cores))
    return Placement(node=fleet.name_of(number), gpus=tuple(shares))


def _warnings(look: Look, policy: PolicyName, rows: list[int], sizes: Ints) -> tuple[DecisionWarning, ...]:
    """Say what a reader of this placement must know: books instead of card, or strict overruled."""
    found: list[DecisionWarning] = []
    if rows and policy is PolicyName.MOSTIDLE and not idle_cards(look)[rows].all():
        found.append(DecisionWarning(code=WarningCode.NO_IDLE_GPU))
    for row in rows:
        if look.mode_at(row) is RealtimeMode.DISABLED:
            continue
        free, ask = Mib(int(look.strict_free[row])), Mib(int(sizes[row]))
        if look.fresh[row] and free >= ask:
            continue
        code = WarningCode.STRICT_WOULD_REFUSE if look.fresh[row] else WarningCode.PLACED_BY_BOOKS
        seen_at = float(look.columns.observed_at[row])
        found.append(
            DecisionWarning(
                code=code,
                gpu=look.columns.card(row).uuid,
                ask=ask,
                free=free,
                age_s=None if seen_at == NEVER else look.now - seen_at,
            )
        )
    return tuple(found)
