"""Where a pod without GPUs does least harm: used by the embedded cluster, which places those too."""

import numpy as np
import numpy.typing as npt

from vramline.decide.baselines import BASELINES, add_up, baseline_terms, look_at_room
from vramline.decide.prospects import can_look_ahead
from vramline.decide.scene import scene_of
from vramline.decide.weighing import THINKS_AHEAD, weigh_blocks_for_cpu
from vramline.model.fleet import Fleet
from vramline.model.rules import Rules

__all__ = ["host_costs"]


def host_costs(fleet: Fleet, rules: Rules, cpu_milli: int, *, now: float) -> npt.NDArray[np.int64]:
    """Return the cost by node number, lower is better; 0 for nodes without cards, which nobody misses."""
    costs = np.zeros(fleet.node_count, dtype=np.int64)
    columns, policy = fleet.columns, rules.policy
    if policy in THINKS_AHEAD and can_look_ahead(fleet):
        by_block = weigh_blocks_for_cpu(fleet, scene_of(fleet, rules, now=now), policy, cpu_milli)
    elif policy in BASELINES:
        nothing, room = np.zeros(len(columns.blocks), dtype=np.int64), look_at_room(fleet, columns.free_books)
        by_block = add_up(baseline_terms(policy, fleet, room, None, nothing, cpu_milli))
    else:
        return costs
    here = columns.node_of_block >= 0
    costs[columns.node_of_block[here]] = by_block[here]
    return costs
