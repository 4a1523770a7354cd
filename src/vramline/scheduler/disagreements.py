"""The self-check: pods that carry our allocation, and of which no ledger knows."""

from vramline.model.pod import PodPhase
from vramline.scheduler.live import LiveState
from vramline.wire import keys

__all__ = ["find_disagreements"]


def find_disagreements(live: LiveState) -> list[str]:
    """Name every live pod with our allocation and no claim in its node's ledger."""
    found = []
    for pod in live.pods.values():
        if pod.node is None or pod.allocation is None or pod.allocation.origin != keys.ALLOCATION:
            continue
        stored = {claim.pod_uid for claim in live.ledger_of(pod.node).claims}
        if pod.phase is not PodPhase.FINISHED and pod.uid not in stored:
            found.append(pod.key)
    return found
