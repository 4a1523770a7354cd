"""The one `decide()`: sizes → look → filters → scores → pick, for production, simulator and benchmark."""

import numpy as np
import numpy.typing as npt

from vramline.decide.board import Board, board_of
from vramline.decide.filters import shortfall
from vramline.decide.idle import idle_cards
from vramline.decide.pick import pick_cards, pick_waiting_node, rank_by_score
from vramline.decide.realtime import Look, prefer
from vramline.decide.scene import Scene, scene_of
from vramline.decide.scores import TIER, UNREACHABLE, card_costs, chosen_cost, node_costs, with_tiers
from vramline.decide.weighing import THINKS_AHEAD
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
    scene = scene_of(fleet, rules, now=now)
    board = board_of(fleet, scene, ask, now=now)
    look = scene.look_at(columns, slice(None), now=now)
    node_codes = board.node_codes
    if candidates is not None:
        # FITS is 0. Quicker than `where`, and than truth values that are made numbers one by one.
        is_open = (candidates == FITS).view(np.int8)
        node_codes = candidates + node_codes * is_open
    scores = _score_nodes(fleet, look, ask, board) if board.scores is None else board.scores
    best, fitting_count, scores = rank_by_score(fleet, node_codes, scores)
    number = int(best[0]) if fitting_count else None
    rows: list[int] = []
    nominated: int | None = None
    if number is not None:
        rows = _pick_cards(fleet, scene, ask, board, number, now=now)
    elif columns.held_releasing.any():
        releasing = np.where(look.observed, columns.held_releasing, columns.claimed_releasing)
        short = shortfall(board.sizes, look.free)
        nominated = pick_waiting_node(fleet, ask, board.row_codes, node_codes, (short, releasing))
    return Decision(
        ask=ask,
        mode=_mode_of(fleet, look, rows),
        policy=board.policy,
        at=now,
        generation=fleet.generation,
        ledger_version=fleet.ledger.version,
        placement=_placement(fleet, number, rows, board.sizes, ask),
        nominated=None if nominated is None else fleet.name_of(nominated),
        row_codes=board.row_codes,
        node_codes=node_codes,
        scores=scores,
        sizes=board.sizes,
        free=scene.free,
        observed=scene.observed,
        fitting_count=fitting_count,
        best_nodes=best,
        fitting=board.fitting,
        lacking=board.lacking,
        warnings=_warnings(look, board.policy, rows, board.sizes),
        loans=(scene.loans.give(), board.loans.give()),
        judged_by=(scene, board),
    )


def _mode_of(fleet: Fleet, look: Look, rows: list[int]) -> RealtimeMode:
    """Return the mode by which the node was judged that was chosen, or that was the only one."""
    if rows:
        return look.mode_at(rows[0])
    return look.mode_at(0) if fleet.node_count == 1 and len(look.columns) else look.rules.mode


def _score_nodes(fleet: Fleet, look: Look, ask: Ask, board: Board) -> Ints:
    """Return the score of each node by number, under a policy that looks at nodes as they are.

    One that thinks ahead takes the tightest cards as long as it knows too little of what is asked for.
    """
    by_card = _order_cards(look, ask, board.policy, board.sizes)
    costs = chosen_cost(look.columns, ask, board.row_codes, by_card)
    if board.policy not in THINKS_AHEAD:
        costs = with_tiers(costs, node_costs(fleet, look, ask, board.policy, board.sizes))
    scores = np.full(fleet.node_count, -UNREACHABLE, dtype=np.int64)
    nodes = fleet.columns.node_of_block
    scores[nodes[nodes >= 0]] = -costs[nodes >= 0]
    return scores


def _order_cards(look: Look, ask: Ask, policy: PolicyName, sizes: Ints) -> Ints:
    """Return what each card costs, tiers of preference included."""
    return prefer(look, sizes) * TIER + card_costs(look, ask.gpu_policy or policy, sizes)


def _pick_cards(fleet: Fleet, scene: Scene, ask: Ask, board: Board, number: int, *, now: float) -> list[int]:
    """Return the rows of the cards that are taken on a node."""
    block = fleet.block_of(number)
    if board.scores is not None and ask.gpus == 1:
        return [int(board.picks[block])]
    run = fleet.columns.blocks[block]
    rows = slice(run.start, run.start + run.width)
    part, _ = fleet.columns.part(np.array([block]))
    order = _order_cards(scene.look_at(part, rows, now=now), ask, board.policy, board.sizes[rows])
    return [run.start + row for row in pick_cards(part, ask, board.row_codes[rows], order)]


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
