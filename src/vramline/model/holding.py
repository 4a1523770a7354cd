"""What a bind needs of those who keep a card out of kubelet's hands before a pod shares it."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from vramline.model.decision import Placement
from vramline.model.pod import Pod

__all__ = ["CardHolder", "Changed", "Elsewhere", "Held", "NotHeld"]


class Held(msgspec.Struct, frozen=True):
    """All cards of the placement are held. `uuids`: what the containers are to see, by card."""

    uuids: dict[str, str]


class Elsewhere(msgspec.Struct, frozen=True):
    """kubelet gave other cards than were planned. `uuids`: those of the node that are held now, by card."""

    uuids: dict[str, str]
    final: str = ""
    """Why there is no use in another try; empty: kubelet may still give what was planned."""


class Changed(msgspec.Struct, frozen=True):
    """Further cards are held than a moment ago, and kubelet was not asked: planning anew may need none."""


class NotHeld(msgspec.Struct, frozen=True):
    """No card was given."""

    why: str


class CardHolder(Protocol):
    """Holds cards for pods that are about to share them, and records what became of every bind."""

    def holds_for(self, pod: Pod, node: str) -> bool:
        """Whether the cards of this pod must be held there: kubelet gives it none itself."""
        ...

    def leaves_choice(self, pod: Pod, node: str) -> bool:
        """Whether kubelet would give this pod devices there, and could give others than it was told."""
        ...

    def deadline(self) -> float:
        """Return until when a bind that begins now may take."""
        ...

    def held_on(self, node: str) -> dict[str, str]:
        """Return the cards of a node that are held now, and what containers are to see of each."""
        ...

    def barred_for(self, pod: Pod) -> list[str]:
        """Return the nodes where this pod can have no card but those that are held: kubelet has no device."""
        ...

    async def hold(
        self, pod: Pod, placement: Placement, *, until: float
    ) -> Held | Elsewhere | Changed | NotHeld:
        """Have the cards held, and say which were given; asked once more, kubelet is asked once more."""
        ...

    async def finish(self, pod: Pod, placement: Placement, refused: str) -> None:
        """Record how a bind ended that had got as far as its claim; `refused` is empty where it is bound."""
        ...

    def taking_back(self, pod: Pod, placement: Placement) -> AbstractAsyncContextManager[None]:
        """Record a bind that an earlier leader began and left at its claim, which goes meanwhile."""
        ...
