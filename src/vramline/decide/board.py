"""What one class of asks meets on every card and node: kept from ask to ask, judged anew where it changed.

Pods come in classes: the next one asks for what another asked for before. Between the two a few nodes
changed, and the scene knows which. What is on a board is exactly what judging everything anew would say.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramline.decide.filters import (
    fitting_cards,
    node_code_of_cards,
    refuse_for_good,
    refuse_for_now,
    shortfall,
)
from vramline.decide.fragments import Cards, OnKinds
from vramline.decide.grid import cheapest
from vramline.decide.loans import Loans
from vramline.decide.prospects import Prospects, can_look_ahead
from vramline.decide.realtime import Look, only_tier, prefer
from vramline.decide.scene import Rows, Scene
from vramline.decide.scores import TIER, UNREACHABLE, card_costs, chosen_cost, with_tiers
from vramline.decide.weigher import Weigher
from vramline.decide.weighing import (
    MANY,
    THINKS_AHEAD,
    Outlook,
    best_fitting,
    on_kinds_of,
    outlook_of,
)
from vramline.model.ask import Ask, PolicyName
from vramline.model.columns import GpuColumns
from vramline.model.fleet import Fleet
from vramline.model.reason import CODE_OF, FITS, Reason

__all__ = ["Board", "board_of"]

_BYTES = 64 * 2**20
"""How much memory the boards of a scene may take together."""
_LEAST = 8
"""How many boards are kept however large they are."""

_NEAR = np.arange(len(Reason) + 1, dtype=np.int8)
_NEAR[[CODE_OF[Reason.INSUFFICIENT_VRAM], CODE_OF[Reason.GPU_TOO_SMALL]]] = FITS
"""Code by code: what is left of it if memory is all that a card lacks."""
_TOO_FEW = np.int8(CODE_OF[Reason.NOT_ENOUGH_GPUS])
_NO_VRAM = np.int8(CODE_OF[Reason.INSUFFICIENT_VRAM])

_FEW = 64
"""So many cards are weighed as they are; among more it pays to leave out those that are alike."""
_SINGLE = 24
"""So many cards are compared one by one: quicker than sorting them by array."""
_SORTED = 512
"""So many are sorted: with more it is quicker to look for the lowest of each group."""
_NEVER = 2**40
"""More MiB than any card has."""
_NOTHING = OnKinds(0, None, np.zeros(0), np.zeros(0))

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]


class _Part(NamedTuple):
    """The blocks that are judged anew, as if they were all; arrays are by row of the part."""

    blocks: Ints
    columns: GpuColumns
    rows: Rows
    look: Look
    sizes: Ints
    codes: Codes
    by_memory: bool
    """Whether cards that do not fit lack memory and nothing else."""
    whole: GpuColumns
    left: Ints
    """By row of all: MiB that pods to come may use."""
    wanted: Ints
    """By row of all: what the ask means there."""

    def fitting(self) -> tuple[Ints, Ints]:
        """Return which cards fit: as rows of the part, and as rows of all."""
        here: Ints = (self.codes == FITS).nonzero()[0]
        return here, self.rows_of_all(here)

    def rows_of_all(self, here: Ints) -> Ints:
        """Turn rows of the part into rows of all."""
        rows = self.rows
        return here + (rows.start or 0) if isinstance(rows, slice) else rows.take(here)

    def cards(self, rows: Ints) -> Cards:
        """Return what cards are like, by their rows of all."""
        whole = self.whole
        return Cards(
            whole.block.take(rows), self.left.take(rows), whole.kind.take(rows), self.wanted.take(rows)
        )


class Board:
    """The verdicts on one class of asks under one policy."""

    def __init__(self, fleet: Fleet, scene: Scene, ask: Ask, policy: PolicyName) -> None:
        columns, blocks = fleet.columns, len(fleet.columns.blocks)
        self.policy = policy
        self.sizes = scene.sizes_of(columns, ask.size)
        """By row: what the ask means there."""
        self.row_codes = np.zeros(len(columns), dtype=np.int8)
        self.fitting = np.zeros(blocks, dtype=np.int64)
        """By block: how many cards fit and may be taken together."""
        self.lacking = np.zeros(blocks, dtype=np.int64)
        """By block: MiB lacking in all; UNREACHABLE where memory alone would not help."""
        self.node_codes: Codes = np.zeros(0, dtype=np.int8)
        self.scores: Ints | None = None
        """By node number; None: the policy does not think ahead, or knows too little to."""
        self.picks = np.zeros(blocks, dtype=np.int64)
        """By block: the row that is taken where one card is wanted; holds only where there are scores."""
        self.meaning = _NOTHING
        """What the ask is to each kind of card, if the policy thinks ahead."""
        self.loans = Loans()
        final = refuse_for_good(columns, ask, self.sizes)
        self._final = final if final.any() else None
        self._nodes = columns.node_of_block.copy()  # as long as there is this board, no block gets another
        self._has_idle = bool((self._nodes < 0).any())
        self._verdicts = np.zeros(blocks, dtype=np.int8)
        self._costs = np.zeros(blocks, dtype=np.int64)
        self._open: Codes | None = None
        self._has_closed = True
        self._prospects: Prospects | None = None
        self._hopeless: Ints | None = None
        self._seen = 0

    @property
    def nbytes(self) -> int:
        """How much memory it takes; sizes are shared with others."""
        return 2 * self.row_codes.nbytes + 6 * self.fitting.nbytes

    def fork(self) -> "Board":
        """Return the same for a copy of the fleet."""
        copy: Board = object.__new__(Board)
        copy.__dict__.update(self.__dict__)
        copy.loans = Loans(self.loans.give())
        return copy

    def hopeless(self, columns: GpuColumns, ask: Ask) -> Ints:
        """Return the numbers of the nodes whose cards would not do if they were empty and had been seen."""
        if self._hopeless is None:
            codes = np.zeros(len(columns), dtype=np.int8) if self._final is None else self._final
            enough = fitting_cards(columns, ask, codes) >= ask.gpus
            self._hopeless = self._nodes[(self._nodes >= 0) & ~enough]
        return self._hopeless

    def renew(self, fleet: Fleet, scene: Scene, ask: Ask, *, now: float) -> None:
        """Judge anew what changed in the scene since the last ask of the class."""
        outlook = self._look_ahead(fleet, scene, ask)
        blocks, is_open = scene.changes.since(self._seen), fleet.node_codes()
        if not len(blocks) and is_open is self._open:
            return
        if self.loans.must_copy:
            self._own_arrays()
        if len(blocks):
            part = self._part(fleet, scene, ask, blocks, now=now)
            self._judge(part, ask)
            if outlook is not None:
                weigh = self._weigh_one if ask.gpus == 1 else self._weigh_several
                weigh(part, ask, outlook, scene.states(fleet.columns) if len(blocks) >= MANY else None)
        self._seen = scene.changes.version
        self._tell_nodes(is_open, blocks)

    def _look_ahead(self, fleet: Fleet, scene: Scene, ask: Ask) -> Outlook | None:
        """Think of the pods to come, if the policy does; other prospects than before make all costs void."""
        thinks = self.policy in THINKS_AHEAD and can_look_ahead(fleet)
        outlook = outlook_of(fleet, scene) if thinks else None
        prospects = None if outlook is None else outlook.prospects
        if prospects is not self._prospects:
            self._prospects, self._seen, self._open = prospects, 0, None
            self.meaning = _NOTHING if prospects is None else on_kinds_of(fleet.columns, prospects, ask)
        return outlook

    def _part(self, fleet: Fleet, scene: Scene, ask: Ask, blocks: Ints, *, now: float) -> _Part:
        columns, rows = fleet.columns.part(blocks)
        look, sizes = scene.look_at(columns, rows, now=now), self.sizes[rows]
        final = None if self._final is None else self._final[rows]
        codes, by_memory = refuse_for_now(look, ask, sizes, final)
        whole = (fleet.columns, scene.left, self.sizes)
        return _Part(blocks, columns, rows, look, sizes, codes, by_memory, *whole)

    def _judge(self, part: _Part, ask: Ask) -> None:
        blocks, columns = part.blocks, part.columns
        fitting = fitting_cards(columns, ask, part.codes)
        self.row_codes[part.rows], self.fitting[blocks] = part.codes, fitting
        fits = fitting >= ask.gpus
        if np.count_nonzero(fits) == len(blocks):
            self.lacking[blocks], self._verdicts[blocks] = 0, FITS
        else:
            short = shortfall(part.sizes, part.look.free)
            if part.by_memory and ask.gpus == 1:
                self.lacking[blocks] = columns.lowest_per_block(short)
                self._verdicts[blocks] = ~fits * _NO_VRAM
            else:
                nearest = _TOO_FEW if ask.gpus > 1 else node_code_of_cards(columns, part.codes, short)
                self.lacking[blocks] = chosen_cost(columns, ask, _NEAR[part.codes], short)
                self._verdicts[blocks] = np.where(fits, np.int8(FITS), nearest)

    def _weigh_one(self, part: _Part, ask: Ask, outlook: Outlook, states: Ints | None) -> None:
        """Write the cost of the cheapest card of each block, and which one it is."""
        self._costs[part.blocks] = UNREACHABLE
        here, rows = part.fitting()
        if not len(here):
            return
        cards, tiers = part.cards(rows), self._tiers(part, here)
        if len(here) > _FEW:
            some = _unlike_the_one_before(cards, tiers)
            here, rows, cards = here[some], rows[some], cards.some(some)
            tiers = tiers if isinstance(tiers, int) else tiers[some]
        weigher = self._weigher(outlook)
        costs = weigher.weigh(cards) if states is None else weigher.weigh_many(cards, states)
        order = costs = costs + tiers
        if ask.gpu_policy is not None and ask.gpu_policy is not self.policy:
            order = card_costs(part.look, ask.gpu_policy, part.sizes)[here] + tiers
        best = _first_lowest(cards.block, order)
        chosen = cards.block[best]
        self._costs[chosen], self.picks[chosen] = costs[best], rows[best]

    def _tiers(self, part: _Part, here: Ints) -> Ints | int:
        """Return what the tiers of these rows of a part add to their costs; one number: the same for all."""
        tier = only_tier(part.look)
        return prefer(part.look, part.sizes)[here] * TIER if tier is None else tier * TIER

    def _weigher(self, outlook: Outlook) -> Weigher:
        return Weigher(self.policy, outlook.prospects, outlook.standing, self.meaning)

    def _weigh_several(self, part: _Part, ask: Ask, outlook: Outlook, states: Ints | None) -> None:
        weigher, columns = self._weigher(outlook), part.columns
        if states is None:
            here, rows = part.fitting()
            taken = best_fitting(part.cards(rows)._replace(block=columns.block[here]), ask.gpus)
            costs = weigher.weigh_sets(part.blocks, taken)
        else:
            spare = np.where(part.codes == FITS, part.left[part.rows] - part.sizes, _NEVER)
            enough, here = cheapest(columns, spare, ask.gpus, never=_NEVER)
            blocks, places = part.blocks[enough], here - columns.starts[enough, None]
            costs = np.zeros(len(part.blocks), dtype=np.int64)
            taken = part.cards(part.rows_of_all(here.ravel()))
            costs[enough] = weigher.weigh_many_sets(blocks, taken, states[blocks], places)
        self._costs[part.blocks] = with_tiers(self._chosen(part, ask), costs)

    def _chosen(self, part: _Part, ask: Ask) -> Ints:
        """Return what the tiers of the cards that would be taken add to the cost of each block."""
        tier = only_tier(part.look)
        if tier is not None:
            fits = self.fitting[part.blocks] >= ask.gpus
            return np.where(fits, np.int64(ask.gpus * tier * TIER), UNREACHABLE)
        by_card = card_costs(part.look, ask.gpu_policy or self.policy, part.sizes)
        return chosen_cost(part.columns, ask, part.codes, by_card + prefer(part.look, part.sizes) * TIER)

    def _tell_nodes(self, is_open: Codes, blocks: Ints) -> None:
        """Bring codes and scores of nodes in line with those of their blocks."""
        if is_open is not self._open:
            blocks = (self._nodes >= 0).nonzero()[0]
            self.node_codes = is_open.copy()
            self.scores = None
            if self._prospects is not None:
                self.scores = np.full(len(is_open), -UNREACHABLE, dtype=np.int64)
            self._open, self._has_closed = is_open, bool(is_open.any())
        nodes = self._nodes[blocks]
        if self._has_idle and np.count_nonzero(nodes < 0):
            nodes, blocks = nodes[nodes >= 0], blocks[nodes >= 0]
        verdicts = self._verdicts[blocks]
        if self._has_closed:
            closed = is_open[nodes]
            verdicts = np.where(closed, closed, verdicts)
        self.node_codes[nodes] = verdicts
        if self.scores is not None:
            self.scores[nodes] = -self._costs[blocks]

    def _own_arrays(self) -> None:
        self.row_codes, self.fitting = self.row_codes.copy(), self.fitting.copy()
        self.lacking, self.node_codes = self.lacking.copy(), self.node_codes.copy()
        self.scores = None if self.scores is None else self.scores.copy()
        self.picks, self._verdicts, self._costs = self.picks.copy(), self._verdicts.copy(), self._costs.copy()
        self.loans.copied()


class _Boards:
    """The boards of one scene, by class of ask and policy."""

    def __init__(self) -> None:
        self.by_class: OrderedDict[Hashable, Board] = OrderedDict()

    def fork(self) -> "_Boards":
        """Return the same for a copy of the fleet."""
        copy = _Boards()
        copy.by_class = OrderedDict((key, board.fork()) for key, board in self.by_class.items())
        return copy


def board_of(fleet: Fleet, scene: Scene, ask: Ask, *, now: float) -> Board:
    """Return the board for an ask as things are now. The scene has been renewed."""
    policy = ask.node_policy or scene.rules.policy
    boards: _Boards = scene.built.setdefault("boards", _Boards())
    key = (ask.size, ask.gpus, ask.cores, ask.cpu_milli, ask.constraints, policy, ask.gpu_policy)
    board = boards.by_class.get(key)
    if board is None:
        board = boards.by_class[key] = Board(fleet, scene, ask, policy)
        if len(boards.by_class) > max(_LEAST, _BYTES // max(board.nbytes, 1)):
            boards.by_class.popitem(last=False)
    boards.by_class.move_to_end(key)
    board.renew(fleet, scene, ask, now=now)
    return board


def _unlike_the_one_before(cards: Cards, tiers: Ints | int) -> Ints:
    """Leave out cards that are like the one before them on the same node: they cost the same."""
    same = (
        (cards.block[1:] == cards.block[:-1])
        & (cards.left[1:] == cards.left[:-1])
        & (cards.kind[1:] == cards.kind[:-1])
    )
    if not isinstance(tiers, int):
        same &= tiers[1:] == tiers[:-1]
    return np.concatenate([[True], ~same]).nonzero()[0]


def _first_lowest(groups: Ints, values: Ints) -> Ints:
    """Return for each group (ascending) where its lowest value is first."""
    if len(groups) <= _SINGLE:
        listed = values.tolist()
        best: dict[int, int] = {}
        for place, group in enumerate(groups.tolist()):
            if listed[place] < listed[best.setdefault(group, place)]:
                best[group] = place
        return np.array(list(best.values()), dtype=np.int64)
    if len(groups) <= _SORTED:
        order = np.lexsort((values, groups))
        return order[_where_it_changes(groups[order])]
    starts = _where_it_changes(groups)
    lowest = np.minimum.reduceat(values, starts)
    found: Ints = (values == lowest.repeat(np.diff(starts, append=len(groups)))).nonzero()[0]
    return found[_where_it_changes(groups[found])]


def _where_it_changes(groups: Ints) -> Ints:
    """Return where each group begins; equal ones stand next to each other."""
    is_first = np.ones(len(groups), dtype=np.bool_)
    np.not_equal(groups[1:], groups[:-1], out=is_first[1:])
    starts: Ints = is_first.nonzero()[0]
    return starts
