"""Cards that can work together on one model: one model of card, one size."""

import msgspec

from vramline.model.fleet import Fleet

__all__ = ["CardKind", "kinds_of"]


class CardKind(msgspec.Struct, frozen=True, order=True):
    """Cards that can work together: one model, one size."""

    total_mib: int
    model: str


def kinds_of(fleet: Fleet) -> dict[CardKind, tuple[str, ...]]:
    """Return the cards of a fleet by kind."""
    kinds: dict[CardKind, list[str]] = {}
    for node in fleet.nodes:
        for gpu in node.gpus:
            kinds.setdefault(CardKind(gpu.total, gpu.model), []).append(gpu.uuid)
    return {kind: tuple(uuids) for kind, uuids in kinds.items()}
