"""Deciding about one node for one pod: at bind, and where kube-scheduler asks about nothing else."""

import msgspec
import numpy as np
import numpy.typing as npt

from vramline.decide.engine import decide
from vramline.decide.host import refuse_by_pool
from vramline.model.ask import Ask
from vramline.model.decision import Decision
from vramline.model.fleet import Fleet
from vramline.model.pod import Pod
from vramline.model.reason import CODE_OF, FITS, Reason
from vramline.scheduler.live import LiveState

__all__ = ["decide_on_node", "open_to"]


def decide_on_node(live: LiveState, pod: Pod, ask: Ask, node: str) -> tuple[Fleet, Decision]:
    """Return what is decided as if there were only this node, and the fleet that the decision is about.

    Cards that were reserved for the pod come first. As long as nothing is kept for anybody, a node is to
    this pod what it is to all: then verdicts that the last filter left are used, and those that are made
    here are left for the next. A picture of the node would be judged from nothing, twice as dear.
    """
    rules, now = live.rules_for(ask), live.now()
    number = live.fleet.node_number(node)
    if not pod.advances and not len(live.nominees) and number is not None:
        only = open_to(live.fleet, node, pod)
        return live.fleet, decide(live.fleet, ask, rules, now=now, candidates=only)
    view = live.view_of(node, pod)
    only = open_to(view, node, pod)
    reserved = tuple(claim.gpu for claim in live.reserved_for(pod, node))
    if reserved and not ask.constraints.use_uuids:
        wishes = msgspec.structs.replace(ask.constraints, use_uuids=reserved)
        narrowed = msgspec.structs.replace(ask, constraints=wishes)
        there = decide(view, narrowed, rules, now=now, candidates=only)
        if there.placement is not None:
            return view, there
    return view, decide(view, ask, rules, now=now, candidates=only)


def open_to(fleet: Fleet, node: str, pod: Pod) -> npt.NDArray[np.int8]:
    """Return by node number that this node alone is a candidate, if it has the memory that a pod requests."""
    candidates = np.full(fleet.node_count, CODE_OF[Reason.NOT_A_CANDIDATE], dtype=np.int8)
    number = fleet.node_number(node)
    if number is not None:
        candidates[number] = FITS
    return refuse_by_pool(candidates, fleet, pod.host)
