"""What a scheduler needs of the cluster it works for. The real one and the embedded one both are this."""

from typing import Protocol

import msgspec

from vramline.model.decision import Placement
from vramline.model.pod import Pod

__all__ = ["BindOutcome", "Cluster"]


class BindOutcome(msgspec.Struct, frozen=True):
    """How a binding ended. `refused` is empty when the pod is bound."""

    refused: str = ""


class Cluster(Protocol):
    """The side of a cluster that takes effects."""

    async def bind(self, pod: Pod, placement: Placement, *, ledger_version: int) -> BindOutcome:
        """Write the binding with the allocation in it, in one step, or say why not."""
        ...
