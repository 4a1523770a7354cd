"""Nodes on which HAMi's device plugin still hands out the devices, while a cluster moves there or back.

kubelet does not tell a device plugin for whom it asks. HAMi's takes the pod that its node lock names,
whatever became of that pod; without a lock, the first on the node that is Pending and whose devices are
`allocating` or were handed out already. If it takes a wrong one, the right one fails. So a pod is bound there
only when no other can be taken for it: no lock names another, and all others that the plugin was told of
have started. Who takes the lock himself (`hami_lock`) need not wait for that.
"""

from collections.abc import Iterator

from vramline.model.decision import Placement
from vramline.model.node import Node
from vramline.model.pod import HamiPhase, Pod, PodPhase
from vramline.scheduler.live import LiveState
from vramline.wire import keys
from vramline.wire.hami import hand_over

__all__ = ["annotations_for_hami", "asks_hami", "why_hami_waits"]


def annotations_for_hami(live: LiveState, pod: Pod, placement: Placement) -> dict[str, str]:
    """Return what a binding tells HAMi; nothing on nodes where it has no plugin."""
    node = live.fleet.node(placement.node)
    if node is None or not node.has_hami:
        return {}
    return hand_over(placement.node, placement.gpus, pod.device_containers, at=live.now())


def asks_hami(live: LiveState, pod: Pod, name: str) -> bool:
    """Whether kubelet would ask HAMi's device plugin on a node for the devices of a pod."""
    node = live.fleet.node(name)
    return node is not None and node.has_hami and pod.holds_devices


def why_hami_waits(live: LiveState, pod: Pod, name: str, *, locks: bool = False) -> str:
    """Say why HAMi's device plugin cannot be given a pod now; empty: it can, or it is not asked.

    With `locks` the pod is bound under a lock of its own; whether that can be had is not asked here.
    """
    node = live.fleet.node(name)
    if node is None or not asks_hami(live, pod, name):
        return ""
    if sum(pod.device_containers) > 1:
        return f"HAMi's device plugin on {name} can be told the devices of one container, not of several"
    if node.hami_lock and node.hami_lock != pod.key and not locks:
        return (
            f"HAMi's lock on {name} ({keys.HAMI_LOCK}) names {node.hami_lock}: its device plugin would take"
            f" that pod for {pod.key}; where HAMi binds none, remove the lock"
        )
    for each in (*live.pods_on(name), *_being_bound(live, node)):
        if not each.holds_devices or each.uid == pod.uid:
            continue
        if each.phase is PodPhase.PENDING or each.hami_phase is HamiPhase.ALLOCATING:
            return f"HAMi's device plugin on {name} has yet to hand out the devices of {each.key}"
        if each.hami_phase is HamiPhase.SUCCESS and not locks:
            return f"HAMi's device plugin on {name} may take {each.key}, which has not started, for this pod"
    return ""


def _being_bound(live: LiveState, node: Node) -> Iterator[Pod]:
    """Yield the pods that were promised cards of a node and are not bound yet."""
    for gpu in node.gpus:
        for claim in live.fleet.ledger.of_card(gpu.uuid):
            pod = live.pods.get(claim.pod_uid)
            if pod is not None and pod.node is None:
                yield pod
