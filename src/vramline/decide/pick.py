"""Which node, and which of its cards. Ties go to the lowest node rank, then to the lowest UUID."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramline.decide.filters import fitting_cards
from vramline.model.ask import Ask
from vramline.model.columns import GpuColumns
from vramline.model.fleet import Fleet
from vramline.model.reason import CODE_OF, FITS, Reason

__all__ = ["Ranking", "best_first", "pick_cards", "pick_waiting_node", "rank_by_score"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]

_NOBODY = np.zeros(0, dtype=np.int64)
_LOWEST = np.iinfo(np.int64).min


class Ranking(NamedTuple):
    """Nodes by score."""

    best: Ints
    """The numbers of those that fit and have the highest score, by rank."""
    fitting: int
    """How many fit."""
    scores: Ints
    """By node number; the lowest there is where the node does not fit, if any fits."""


def rank_by_score(fleet: Fleet, node_codes: Codes, scores: Ints) -> Ranking:
    """Find the best of the nodes that fit."""
    fits = node_codes == FITS
    number = int(np.count_nonzero(fits))
    if not number:
        return Ranking(_NOBODY, 0, scores)
    theirs = np.where(fits, scores, _LOWEST)
    return Ranking(_with_score(fleet, theirs, theirs.max()), number, theirs)


def best_first(fleet: Fleet, scores: Ints, most: int) -> Ints:
    """Return the numbers of the `most` nodes with the highest scores, best first, equals by rank.

    For a few this is quicker than ordering or parting all.
    """
    by_rank = fleet.ranks().by_rank
    left = scores.copy() if by_rank is None else scores.take(by_rank)
    found: list[int] = []
    for _ in range(most):
        place = int(left.argmax())
        found.append(place)
        left[place] = _LOWEST
    numbers = np.array(found, dtype=np.int64)
    return numbers if by_rank is None else by_rank.take(numbers)


def _with_score(fleet: Fleet, scores: Ints, score: np.int64) -> Ints:
    """Return the numbers of the nodes with this score, by rank."""
    found: Ints = (scores == score).nonzero()[0]
    ranks = fleet.ranks()
    return found if ranks.by_rank is None else found[ranks.rank.take(found).argsort()]


def pick_cards(columns: GpuColumns, ask: Ask, row_codes: Codes, costs: Ints) -> list[int]:
    """Return the rows of the `ask.gpus` cheapest fitting cards of one node, in the order of their UUIDs."""
    rows = (row_codes == FITS).nonzero()[0].tolist()
    groups: list[list[int]] = [rows]
    if ask.constraints.numa_bind and ask.gpus > 1:
        domains = sorted({int(columns.numa[row]) for row in rows if columns.numa[row] >= 0})
        groups = [[row for row in rows if columns.numa[row] == domain] for domain in domains]
    picks = [
        sorted(group, key=lambda row: (costs[row], row))[: ask.gpus]
        for group in groups
        if len(group) >= ask.gpus
    ]
    return sorted(min(picks, key=lambda pick: sum(int(costs[row]) for row in pick)))


def pick_waiting_node(
    fleet: Fleet, ask: Ask, row_codes: Codes, node_codes: Codes, lacking: tuple[Ints, Ints]
) -> int | None:
    """Return the node where the ask would fit once releasing memory is free, or None.

    `lacking` is by row (MiB short now, MiB releasing). The node that waits for the fewest MiB wins, so
    that the shortest wait is nominated; nothing is promised there.
    """
    columns = fleet.columns
    short, releasing = lacking
    by_memory = (row_codes == CODE_OF[Reason.INSUFFICIENT_VRAM]) & (releasing >= short)
    would_fit = (row_codes == FITS) | by_memory
    enough = fitting_cards(columns, ask, np.where(would_fit, np.int8(FITS), row_codes)) >= ask.gpus
    memory_only = np.isin(node_codes, [CODE_OF[Reason.INSUFFICIENT_VRAM], CODE_OF[Reason.NOT_ENOUGH_GPUS]])
    nodes = columns.node_of_block
    waiting = (enough & (nodes >= 0) & memory_only[nodes]).nonzero()[0]
    if not len(waiting):
        return None
    wait = columns.lowest_per_block(np.where(would_fit, short, np.iinfo(np.int64).max))[waiting]
    rank = fleet.rank()[nodes[waiting]]
    return int(nodes[waiting[np.lexsort((rank, wait))[0]]])
