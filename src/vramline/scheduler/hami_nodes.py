"""Nodes on which HAMi's device plugin still hands out the devices, while a cluster moves there or back.

kubelet does not tell a device plugin for whom it asks. HAMi's finds the pod by annotations: the one that its
node lock names, else the one on the node whose devices are `allocating`. So on such a node one pod after the
other is bound, and none while the lock names a pod that is still being bound. The lock itself is not taken:
that would need the right to write nodes, and with one pod at a time there is nothing that it would decide.
"""

from collections.abc import Iterator

from vramline.model.decision import Placement
from vramline.model.node import Node
from vramline.model.pod import Pod, PodPhase
from vramline.scheduler.live import LiveState
from vramline.wire.hami import hand_over

__all__ = ["annotations_for_hami", "why_hami_waits"]


def annotations_for_hami(live: LiveState, pod: Pod, placement: Placement) -> dict[str, str]:
    """Return what a binding tells HAMi; nothing on nodes where it has no plugin."""
    node = live.fleet.node(placement.node)
    if node is None or not node.has_hami:
        return {}
    return hand_over(placement.node, placement.gpus, pod.device_containers, at=live.now())


def why_hami_waits(live: LiveState, pod: Pod, name: str) -> str:
    """Say why HAMi's device plugin cannot be given a pod now; empty: it can, or it is not asked."""
    node = live.fleet.node(name)
    if node is None or not node.has_hami or not pod.holds_devices:
        return ""
    if sum(pod.device_containers) > 1:
        return f"HAMi's device plugin on {name} can be told the devices of one container, not of several"
    for each in (*live.pods_on(name), *_being_bound(live, node)):
        awaits = each.phase is PodPhase.PENDING or (each.awaits_hami and each.phase is PodPhase.BOUND)
        if awaits and each.holds_devices and each.uid != pod.uid:
            return f"HAMi's device plugin on {name} has yet to hand out the devices of {each.key}"
    if node.hami_lock and any(
        each.key == node.hami_lock and each.awaits_hami and each.node is None for each in live.pods.values()
    ):
        return f"HAMi has locked {name} for {node.hami_lock}"
    return ""


def _being_bound(live: LiveState, node: Node) -> Iterator[Pod]:
    """Yield the pods that were promised cards of a node and are not bound yet."""
    for gpu in node.gpus:
        for claim in live.fleet.ledger.of_card(gpu.uuid):
            pod = live.pods.get(claim.pod_uid)
            if pod is not None and pod.node is None:
                yield pod
