"""The node with the most idle cards, or none: what policy `mostidle` calls best before anything is asked."""

import numpy as np

from vramline.decide.idle import average_utilization, idle_cards
from vramline.decide.realtime import look_at_cards
from vramline.model.cluster import Cluster
from vramline.model.reason import FITS
from vramline.model.rules import Rules

__all__ = ["best_idle_node"]


def best_idle_node(cluster: Cluster, required: int, rules: Rules) -> str | None:
    """Return the node with at least `required` idle cards that has most of them, then the calmest.

    None: no node has enough, and the choice is better left to the scheduler. What "idle" means is in
    `rules`; a node that is not ready, cordoned or has contradicting inventories is not considered.
    """
    fleet = cluster.fleet
    look = look_at_cards(fleet.columns, rules, now=cluster.now())
    idle = fleet.columns.per_block(idle_cards(look))
    average = average_utilization(look)
    rank, codes = fleet.rank(), fleet.node_codes()
    best: tuple[int, float, int] | None = None
    chosen: str | None = None
    for block in np.flatnonzero((fleet.columns.node_of_block >= 0) & (idle >= max(required, 1))):
        number = int(fleet.columns.node_of_block[block])
        node = fleet.node(fleet.name_of(number))
        if node is None or not node.ready or node.cordoned or codes[number] != FITS:
            continue
        order = (-int(idle[block]), float(average[block]), int(rank[number]))
        if best is None or order < best:
            best, chosen = order, node.name
    return chosen
