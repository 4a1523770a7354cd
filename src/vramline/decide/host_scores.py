"""Where a pod without GPUs does least harm: used by the embedded cluster, which places those too."""

import numpy as np
import numpy.typing as npt

from vramline.decide.baselines import BASELINES, baseline_costs, look_at_room
from vramline.decide.prospects import can_look_ahead
from vramline.decide.weighing import THINKS_AHEAD, weigh_blocks_for_cpu
from vramline.model.ask import PolicyName
from vramline.model.fleet import Fleet

__all__ = ["host_costs"]


def host_costs(fleet: Fleet, policy: PolicyName, cpu_milli: int) -> npt.NDArray[np.int64]:
    """Return the cost by node number, lower is better; 0 for nodes without cards, which nobody misses."""
    costs = np.zeros(fleet.node_count, dtype=np.int64)
    columns = fleet.columns
    free = columns.free_books
    if policy in THINKS_AHEAD and can_look_ahead(fleet):
        by_block = weigh_blocks_for_cpu(fleet, policy, cpu_milli, free)
    elif policy in BASELINES:
        nothing = np.zeros(len(columns.blocks), dtype=np.int64)
        by_block = baseline_costs(policy, fleet, look_at_room(fleet, free), None, nothing, cpu_milli)
    else:
        return costs
    here = columns.node_of_block >= 0
    costs[columns.node_of_block[here]] = by_block[here]
    return costs
