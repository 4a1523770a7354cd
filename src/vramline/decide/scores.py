"""How feasible nodes rank. Costs are integers, lower is better; tiers of preference come first.

vramline   what the placement spoils for the pods to come; `fragments` says how, as for fgd
binpack    fullest node, then fullest card
spread     emptiest node, then emptiest card
mostidle   most idle cards, then lowest average utilisation; nodes without enough idle cards come last

`baselines` has bestfit and the other policies that ours is measured against. Cards are taken by what they
cost, best fit first, where a policy does not say otherwise.
"""

import numpy as np
import numpy.typing as npt

from vramline.decide.baselines import Parts, add_up, baseline_terms, look_at_room
from vramline.decide.grid import as_grid
from vramline.decide.idle import average_utilization, idle_cards
from vramline.decide.realtime import Look
from vramline.model.ask import Ask, PolicyName
from vramline.model.columns import GpuColumns
from vramline.model.fleet import Fleet
from vramline.model.reason import FITS

__all__ = ["TIER", "UNREACHABLE", "card_costs", "chosen_cost", "node_costs", "node_terms", "with_tiers"]

TIER = 2**44
"""One tier of preference weighs more than any policy cost (at most 2^31 MiB on each of 64 cards)."""

UNREACHABLE = 2**62
"""Cost of a card or node that does not fit."""

_MOST_MIB = 2**31
"""More than any card has."""

_PARTS = 1_000_000
"""Resolution of a node's fill."""

Ints = npt.NDArray[np.int64]


def card_costs(look: Look, policy: PolicyName, sizes: Ints) -> Ints:
    """Return the order in which the cards of one node are taken, without tiers; lowest first."""
    match policy:
        case PolicyName.BINPACK:
            return look.free
        case PolicyName.SPREAD:
            return _MOST_MIB - look.free
        case PolicyName.MOSTIDLE:
            return ~idle_cards(look) * np.int64(2**32) + _MOST_MIB - look.free
        case _:
            return look.free - sizes


def chosen_cost(columns: GpuColumns, ask: Ask, row_codes: npt.NDArray[np.int8], costs: Ints) -> Ints:
    """Return for each block the cost of its `ask.gpus` cheapest fitting cards, UNREACHABLE where too few."""
    masked = np.where(row_codes == FITS, costs, UNREACHABLE)
    if ask.gpus == 1:
        return columns.lowest_per_block(masked)
    if not ask.constraints.numa_bind:
        return _sum_of_cheapest(as_grid(columns, masked, UNREACHABLE), ask.gpus)
    result = np.full(len(columns.blocks), UNREACHABLE, dtype=np.int64)
    rows = np.flatnonzero(row_codes == FITS)
    domains = _domains(columns, ask)[rows]
    rows, domains = rows[domains >= 0], domains[domains >= 0]
    order = np.lexsort((masked[rows], domains))
    rows, domains = rows[order], domains[order]
    first = np.concatenate([[True], domains[1:] != domains[:-1]]) if len(rows) else np.zeros(0, dtype=bool)
    starts = np.flatnonzero(first)
    sizes = np.diff(np.append(starts, len(rows)))
    sums = np.concatenate([[0], np.cumsum(masked[rows])])
    starts = starts[sizes >= ask.gpus]
    np.minimum.at(result, columns.block[rows[starts]], sums[starts + ask.gpus] - sums[starts])
    return result


def _sum_of_cheapest(grid: Ints, number: int) -> Ints:
    """Return what the cheapest cards of each line of a grid cost together, UNREACHABLE where too few fit."""
    if grid.shape[1] < number:
        return np.full(len(grid), UNREACHABLE, dtype=np.int64)
    lowest = np.sort(grid, axis=1)[:, :number]
    return np.where(lowest[:, -1] < UNREACHABLE, lowest.sum(axis=1), UNREACHABLE)


def node_terms(fleet: Fleet, look: Look, ask: Ask, policy: PolicyName, sizes: Ints) -> Parts:
    """Return what makes up each block's score under a policy that does not think ahead, without tiers."""
    match policy:
        case PolicyName.BINPACK:
            return [("fill", _fill(look), 1.0)]
        case PolicyName.SPREAD:
            return [("fill", _fill(look), -1.0)]
        case PolicyName.MOSTIDLE:
            return _idleness(look, ask)
        case _:
            wanted = look.columns.lowest_per_block(sizes) * ask.gpus
            room = look_at_room(fleet, look.free)
            return baseline_terms(policy, fleet, room, ask, wanted, ask.cpu_milli)


def node_costs(fleet: Fleet, look: Look, ask: Ask, policy: PolicyName, sizes: Ints) -> Ints:
    """Return each block's cost under a node policy that does not think ahead, without tiers."""
    return add_up(node_terms(fleet, look, ask, policy, sizes))


def with_tiers(chosen: Ints, cost: Ints) -> Ints:
    """Put a node's cost behind the tiers of the cards that would be taken there, see `chosen_cost`."""
    return np.where(chosen >= UNREACHABLE, UNREACHABLE, chosen // TIER * TIER + cost)


def _idleness(look: Look, ask: Ask) -> Parts:
    """Return the order of policy `mostidle`: enough idle cards, then more of them, then calmer."""
    idle = look.columns.per_block(idle_cards(look))
    average = (average_utilization(look) * 100).astype(np.int64)
    return [
        ("too_few_idle", (idle < ask.gpus).astype(np.int64), -(2.0**40)),
        ("idle_cards", np.minimum(idle, 2**16), 2.0**20),
        ("utilization", average, -1.0),
    ]


def _fill(look: Look) -> Ints:
    """Return how full each block is, in parts of a million of what its cards can promise."""
    columns = look.columns
    if not len(columns):
        return np.zeros(0, dtype=np.int64)
    usable = columns.static_code == FITS
    promise = np.add.reduceat(np.where(usable, columns.promise, 0), columns.starts)
    free = np.add.reduceat(np.where(usable, look.free, 0), columns.starts)
    taken = np.clip(promise - free, 0, None)
    fill: Ints = np.minimum(taken * _PARTS // np.maximum(promise, 1), _PARTS)
    return fill


def _domains(columns: GpuColumns, ask: Ask) -> Ints:
    """Number the groups of cards that may be taken together: a node, or a NUMA node of it; −1: none."""
    if not ask.constraints.numa_bind:
        return columns.block.astype(np.int64)
    return np.where(columns.numa >= 0, columns.block * np.int64(4096) + columns.numa, -1)
