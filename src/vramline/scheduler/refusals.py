"""Why a node is refused, for kube-scheduler: one short text a reason, and whether preemption may help.

kube-scheduler counts equal texts in its event ("3 InsufficientVram: …"), so no text holds a number.
"""

import numpy as np
import numpy.typing as npt

from vramline.decide.filters import fitting_cards
from vramline.model.decision import Decision
from vramline.model.fleet import Fleet
from vramline.model.reason import CODE_OF, FITS, Reason

__all__ = ["REFUSALS", "RESERVED_ELSEWHERE", "UNKNOWN_NODE", "may_be_resolved"]

_TEXTS = {
    Reason.INSUFFICIENT_VRAM: "not enough VRAM is free",
    Reason.GPU_TOO_SMALL: "not even an empty GPU could promise it",
    Reason.NO_SLOT_LEFT: "every slot of the GPU is taken",
    Reason.INSUFFICIENT_CORES: "not enough compute is unclaimed",
    Reason.STALE_OBSERVATION: "nobody looked at the GPU lately",
    Reason.UNHEALTHY_GPU: "the GPU is not healthy",
    Reason.CORDONED_GPU: "the GPU is cordoned",
    Reason.MIG_PARTITIONED: "the GPU is partitioned by MIG",
    Reason.WRONG_MODEL: "no GPU of a model that will do",
    Reason.WRONG_UUID: "no GPU with a UUID that will do",
    Reason.NO_SUCH_GPU: "no GPU",
    Reason.NOT_ENOUGH_GPUS: "fewer fitting GPUs than asked for",
    Reason.INVENTORY_CONFLICT: "sources contradict each other about the GPUs",
    Reason.UNKNOWN_INVENTORY: "nothing tells what GPUs there are",
    Reason.FROZEN_NODE: "ledger and pods disagree",
    Reason.NODE_NOT_READY: "the node is not ready",
    Reason.NODE_CORDONED: "the node is cordoned",
    Reason.UNTOLERATED_TAINT: "a taint is not tolerated",
    Reason.NODE_AFFINITY_MISMATCH: "selector or affinity do not match",
    Reason.INSUFFICIENT_CPU: "not enough CPU",
    Reason.INSUFFICIENT_MEMORY: "not enough memory",
    Reason.TOO_MANY_PODS: "no place for another pod",
    Reason.KEPT_FOR_ANOTHER: "what is free is kept for a more important pod",
    Reason.NO_DEVICE_LEFT: "kubelet has no device left for another GPU",
    Reason.KUBELET_CHOOSES: "kubelet would choose the devices of the pod",
    Reason.NOT_A_CANDIDATE: "not asked about",
    Reason.INVALID_REQUEST: "the pod's request is not valid",
}

REFUSALS: dict[int, str] = {CODE_OF[reason]: f"{reason}: {text}" for reason, text in _TEXTS.items()}
"""Text by code."""

UNKNOWN_NODE = f"{Reason.NOT_A_CANDIDATE}: the node is not known here"
RESERVED_ELSEWHERE = f"{Reason.NOT_A_CANDIDATE}: the pod's memory is reserved on another node"

_TAKEN = [
    CODE_OF[reason] for reason in (Reason.INSUFFICIENT_VRAM, Reason.NO_SLOT_LEFT, Reason.INSUFFICIENT_CORES)
]
"""Why a card does not fit although it would, were it empty."""

_CARD_OR_ROOM = [
    CODE_OF[reason]
    for reason in (
        Reason.INSUFFICIENT_VRAM,
        Reason.GPU_TOO_SMALL,
        Reason.NO_SLOT_LEFT,
        Reason.INSUFFICIENT_CORES,
        Reason.STALE_OBSERVATION,
        Reason.UNHEALTHY_GPU,
        Reason.CORDONED_GPU,
        Reason.MIG_PARTITIONED,
        Reason.WRONG_MODEL,
        Reason.WRONG_UUID,
        Reason.NOT_ENOUGH_GPUS,
        Reason.INSUFFICIENT_CPU,
        Reason.INSUFFICIENT_MEMORY,
        Reason.TOO_MANY_PODS,
        Reason.KEPT_FOR_ANOTHER,
        Reason.NO_DEVICE_LEFT,
    )
]
"""Codes of nodes about which only the cards themselves decide, once pods have made room."""

_ROWS_EMPTIED = np.arange(len(Reason) + 1, dtype=np.int8)
_ROWS_EMPTIED[_TAKEN] = FITS
_NODES_EMPTIED = np.arange(len(Reason) + 1, dtype=np.int8)
_NODES_EMPTIED[_CARD_OR_ROOM] = FITS
"""Code by code: what is left of it once every card and the host are empty."""


def may_be_resolved(fleet: Fleet, decision: Decision) -> npt.NDArray[np.bool_]:
    """Return by node number whether the ask would fit there if every card and the host were empty."""
    resolvable: npt.NDArray[np.bool_] = _NODES_EMPTIED.take(decision.node_codes) == FITS
    resolvable[_hopeless(fleet, decision)] = False
    return resolvable


def _hopeless(fleet: Fleet, decision: Decision) -> npt.NDArray[np.int64]:
    """Return the numbers of the nodes whose cards would not do if they were empty."""
    columns, ask = fleet.columns, decision.ask
    scene, board = decision.judged_by
    if not scene.rules.stale_refuses:
        numbers: npt.NDArray[np.int64] = board.hopeless(columns, ask)
        return numbers
    enough = fitting_cards(columns, ask, _ROWS_EMPTIED[decision.row_codes]) >= ask.gpus
    nodes = columns.node_of_block
    return nodes[(nodes >= 0) & ~enough]
