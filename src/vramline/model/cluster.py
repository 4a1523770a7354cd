"""What a scheduler needs of the cluster it works for. The real one and the embedded one both are this."""

from collections.abc import Mapping
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from vramline.model.ask import Ask
from vramline.model.fleet import Fleet
from vramline.model.pod import Pod
from vramline.model.rules import Rules

__all__ = ["BindOutcome", "Cluster"]


class BindOutcome(msgspec.Struct, frozen=True):
    """How a binding ended. `refused` is empty when the pod is bound, else it says why not."""

    refused: str = ""


class Cluster(Protocol):
    """One cluster: its state, its clock, and the one effect that a scheduler has on it."""

    @property
    def fleet(self) -> Fleet:
        """Nodes, cards, claims and observations."""
        ...

    @property
    def pods(self) -> Mapping[str, Pod]:
        """Every pod by UID."""
        ...

    def pod_at(self, uid: str, version: str) -> Pod | None:
        """Return a pod if it is known in exactly this version; None: it must be read from what was sent."""
        ...

    def now(self) -> float:
        """The cluster's time, in seconds since the epoch."""
        ...

    def rules_for(self, ask: Ask | None) -> Rules:
        """How to decide about this ask: settings, overruled by the pod's own annotations."""
        ...

    def candidates_for(self, pod: Pod) -> npt.NDArray[np.int8] | None:
        """By node number FITS or why the host is out of the question; None: somebody else has filtered."""
        ...

    def view_of(self, node: str, pod: Pod) -> Fleet:
        """One node as this pod may use it, as a fleet of its own that is only to be read."""
        ...

    def reserved_on(self, pod: Pod) -> list[str]:
        """The nodes on which memory is reserved for this pod in advance; it can take over one of them."""
        ...

    def leads(self) -> bool:
        """Whether this process may bind pods now."""
        ...

    def disagreements(self) -> list[str]:
        """Live pods whose allocation no ledger confirms; anything in it is a fault."""
        ...

    async def meet(self, namespace: str, name: str) -> None:
        """Get to know a pod that somebody else has heard of already."""
        ...

    async def recall(self, pod_uid: str) -> None:
        """Take back what an earlier attempt promised to an unbound pod and did not keep.

        Otherwise such a promise would stand in the way of the very pod that it was made to.
        """
        ...

    async def bind(self, pod_uid: str, node: str) -> BindOutcome:
        """Decide the cards on this node once more, claim them, and write the binding."""
        ...
