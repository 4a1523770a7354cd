"""The pods that wait: who was refused last, and asks for what."""

from collections import OrderedDict
from collections.abc import Mapping

from vramline.model.ask import Ask
from vramline.model.pod import Pod, PodPhase

__all__ = ["WaitingPods"]


class WaitingPods:
    """The pods that were refused last, as far as they are remembered."""

    def __init__(self, most: int = 1_000) -> None:
        self._most = most
        self._asks: OrderedDict[str, Ask] = OrderedDict()

    def add(self, ask: Ask) -> None:
        """A pod fits nowhere now."""
        self._asks[ask.pod_uid] = ask
        self._asks.move_to_end(ask.pod_uid)
        if len(self._asks) > self._most:
            self._asks.popitem(last=False)

    def still_waiting(self, pods: Mapping[str, Pod]) -> list[Ask]:
        """Return what is asked for by those that wait still, and forget the others."""
        for uid in list(self._asks):
            pod = pods.get(uid)
            if pod is None or pod.phase is not PodPhase.PENDING or pod.node is not None:
                del self._asks[uid]
        return list(self._asks.values())
