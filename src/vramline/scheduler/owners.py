"""A card has one owner."""

import msgspec

from vramline.model.fleet import Fleet
from vramline.model.node import Node, NodeProblem, ProblemKind

__all__ = ["without_cards_of_others"]


def without_cards_of_others(fleet: Fleet, node: Node) -> Node:
    """Return the node; one that names a card of another node says so and gets none of its own cards used."""
    owner = fleet.owner_of_any(node)
    if owner is None:
        return node
    detail = f"GPU {owner.uuid} is on node {owner.node} already"
    problem = NodeProblem(ProblemKind.INVENTORY_CONFLICT, detail)
    return msgspec.structs.replace(node, gpus=(), problem=problem)
