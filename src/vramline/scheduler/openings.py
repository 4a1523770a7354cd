"""Which hosts are out of the question for a pod although kube-scheduler found nothing against them."""

import numpy as np
import numpy.typing as npt

from vramline.decide.host import refuse_by_pool
from vramline.model.holding import CardHolder
from vramline.model.pod import Pod
from vramline.model.reason import CODE_OF, FITS, Reason
from vramline.scheduler.following_cards import decide_among_cards
from vramline.scheduler.live import LiveState

__all__ = ["refuse_hosts"]


def refuse_hosts(live: LiveState, holder: CardHolder | None, pod: Pod) -> npt.NDArray[np.int8] | None:
    """Return by node number FITS or why not; None: all hosts are open.

    What is free may be kept for a more important pod; kubelet may have no device with which another card
    could be taken out of its hands, or would choose the cards of a pod itself; and where a GPU takes from the
    memory of its machine, too little of that may be left for what the pod requests (what was reserved for it
    in advance is judged at its bind).
    """
    if pod.ask is None:
        return None
    fleet = live.fleet
    codes = live.nominees.refuse(fleet, pod, now=live.now())
    barred = [] if holder is None else holder.barred_for(pod)
    takes_memory = bool(fleet.columns.has_unified and pod.host.memory_bytes and not pod.advances)
    chosen = _chosen_by_kubelet(live, holder, pod) if holder is not None and pod.holds_devices else []
    if not barred and not chosen and not takes_memory:
        return codes
    if codes is None:
        codes = np.full(fleet.node_count, FITS, dtype=np.int8)
    codes[chosen] = CODE_OF[Reason.KUBELET_CHOOSES]
    for name in barred:
        number = fleet.node_number(name)
        if holder is not None and number is not None and codes[number] == FITS:
            held = frozenset(holder.held_on(name))
            decision = decide_among_cards(live, pod, name, held)
            if decision is None or decision.placement is None:
                codes[number] = CODE_OF[Reason.NO_DEVICE_LEFT]
    return refuse_by_pool(codes, fleet, pod.host) if takes_memory else codes


def _chosen_by_kubelet(live: LiveState, holder: CardHolder, pod: Pod) -> list[int]:
    """Return the numbers of the nodes on which nobody could say which cards the pod gets."""
    numbers = ((live.fleet.node_number(node.name), node.name) for node in live.fleet.nodes)
    return [number for number, name in numbers if number is not None and holder.leaves_choice(pod, name)]
