"""What makes up the score of a node: the terms of the policy in force, each with its value and its weight."""

from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np
import numpy.typing as npt

from vramline.decide.baselines import Parts
from vramline.decide.board import Board
from vramline.decide.fragments import (
    STEP,
    Cards,
    OnKinds,
    Standing,
    Terms,
    attraction,
    look_at_taking,
    weigh,
    weights_of,
)
from vramline.decide.prospects import Prospects
from vramline.decide.scene import Scene
from vramline.decide.scores import TIER, node_terms
from vramline.decide.weighing import THINKS_AHEAD, best_fitting, last_outlook
from vramline.model.ask import Ask, PolicyName
from vramline.model.decision import Decision
from vramline.model.fleet import Fleet
from vramline.model.reason import FITS

__all__ = ["ScoreTerm", "keep_terms"]

Ints = npt.NDArray[np.int64]
_NOISE = 1e-9

TermsOfNodes = list[list["ScoreTerm"]]


class ScoreTerm(msgspec.Struct, frozen=True):
    """One term of a score: `points` is `value × weight`, and the points of all terms add up to the score."""

    term: str
    value: float
    weight: float
    points: float


def keep_terms(fleet: Fleet, decision: Decision, numbers: Ints) -> Callable[[], TermsOfNodes]:
    """Keep what the scores of some fitting nodes are made of: what is returned tells later what is true now.

    The fleet still is as the decision saw it.
    """
    scores, ask = decision.scores[numbers], decision.ask
    scene, board = decision.judged_by
    blocks = numbers
    if not fleet.columns.is_straight(fleet.node_count):
        blocks = np.array([fleet.block_of(number) for number in numbers.tolist()], dtype=np.int64)
    if board.scores is not None:
        outlook = last_outlook(scene)
        cards = _cards_taken(fleet, scene, board, ask, blocks)
        weigh_them = _weigh_singles if ask.gpus == 1 else _weigh_sets
        terms = partial(weigh_them, outlook.prospects, outlook.standing.of(blocks), cards, board.meaning)
        return partial(_tell_ahead, board.policy, outlook.prospects, terms, scores)
    if board.policy in THINKS_AHEAD:
        return partial(_tell, [("left_over", -_without_tiers(scores), -1.0)], scores)
    look = scene.look_at(fleet.columns, slice(None), now=decision.at)
    parts = node_terms(fleet, look, ask, board.policy, board.sizes)
    return partial(_tell, [(name, values[blocks], weight) for name, values, weight in parts], scores)


def _cards_taken(fleet: Fleet, scene: Scene, board: Board, ask: Ask, blocks: Ints) -> Cards:
    """Return the cards that the ask would get on each of these blocks, named by their place here."""
    columns = fleet.columns
    if ask.gpus == 1:
        rows, place = board.picks.take(blocks), np.arange(len(blocks))
    else:
        runs = [columns.blocks[block] for block in blocks.tolist()]
        rows = np.concatenate([np.arange(run.start, run.start + run.width) for run in runs])
        place = np.repeat(np.arange(len(runs)), [run.width for run in runs])
        fits = board.row_codes[rows] == FITS
        rows, place = rows[fits], place[fits]
    cards = Cards(place, scene.left.take(rows), columns.kind.take(rows), board.sizes.take(rows))
    return cards if ask.gpus == 1 else best_fitting(cards, ask.gpus)


def _weigh_singles(prospects: Prospects, standing: Standing, cards: Cards, ask: OnKinds) -> Terms:
    return weigh(prospects, standing, cards.block, look_at_taking(prospects, cards, ask), ask.cpu)


def _weigh_sets(prospects: Prospects, standing: Standing, cards: Cards, ask: OnKinds) -> Terms:
    nodes = len(standing.kind)
    taking = look_at_taking(prospects, cards, ask).by_node(cards.block, nodes)
    return weigh(prospects, standing, np.arange(nodes), taking, ask.cpu)


def _tell_ahead(
    policy: PolicyName, prospects: Prospects, weighed: Callable[[], Terms], scores: Ints
) -> TermsOfNodes:
    terms = weighed()
    if policy is PolicyName.FGD:
        return _tell([("attraction", attraction(terms), 1.0)], scores)
    weights = weights_of(prospects)
    return _tell([(name, getattr(terms, name) / STEP, -weight) for name, weight in weights.items()], scores)


def _tell(parts: Parts, scores: Ints) -> TermsOfNodes:
    """List the terms of each node; what tiers and rounding make of their sum are terms too."""
    told: TermsOfNodes = []
    for place, score in enumerate(scores.tolist()):
        terms = [
            ScoreTerm(name, float(values[place]), weight, float(values[place]) * weight)
            for name, values, weight in parts
        ]
        tiers = (TIER // 2 - score) // TIER
        if tiers:
            terms.append(ScoreTerm("tiers", float(tiers), -float(TIER), -float(tiers * TIER)))
        rest = score + tiers * TIER - sum(term.points for term in terms if term.term != "tiers")
        if abs(rest) > _NOISE:
            terms.append(ScoreTerm("rounding", rest, 1.0, rest))
        told.append(terms)
    return told


def _without_tiers(scores: Ints) -> Ints:
    rest: Ints = scores + (TIER // 2 - scores) // TIER * TIER
    return rest
