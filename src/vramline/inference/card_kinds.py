"""Cards that can work together on one model: of one kind, and linked where that is known."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from vramline.model.ask import Constraints
from vramline.model.fleet import Fleet

__all__ = ["CardKind", "are_linked", "kinds_of", "wishes_for"]


class CardKind(msgspec.Struct, frozen=True, order=True):
    """Cards that can work together: one model, one size."""

    total_mib: int
    model: str


def kinds_of(fleet: Fleet) -> dict[CardKind, tuple[str, ...]]:
    """Return the cards of a fleet by kind."""
    kinds: dict[tuple[int, str], list[str]] = {}
    for node in fleet.nodes:
        for gpu in node.gpus:
            kinds.setdefault((gpu.total, gpu.model), []).append(gpu.uuid)
    return {CardKind(*kind): tuple(uuids) for kind, uuids in kinds.items()}


def wishes_for(
    fleet: Fleet, kinds: Mapping[CardKind, tuple[str, ...]], kind: CardKind, gpus: int
) -> Iterator[Constraints]:
    """Yield which cards to ask for, best first: such as are linked with each other, then any of the kind.

    `kinds` is what `kinds_of` returned. An ask takes cards of one node. To have it take cards of one group,
    each wish names at most one group of every node.
    """
    if gpus > 1:
        for uuids in _linked_sets(fleet, kind, gpus):
            yield Constraints(use_uuids=uuids)
    yield Constraints() if len(kinds) == 1 else Constraints(use_uuids=kinds.get(kind, ()))


def are_linked(fleet: Fleet, uuids: Iterable[str]) -> bool | None:
    """Whether cards reach each other over NVLink; None: it is only one, or nobody told."""
    groups = [gpu.link_group for uuid in uuids if (gpu := fleet.gpu(uuid)) is not None]
    if len(groups) < 2 or all(group is None for group in groups):
        return None
    return len(set(groups)) == 1


def _linked_sets(fleet: Fleet, kind: CardKind, gpus: int) -> list[tuple[str, ...]]:
    """Return sets of cards: the first large enough group of every node, then the second ones, and so on."""
    sets: list[list[str]] = []
    for node in fleet.nodes:
        groups: dict[int, list[str]] = {}
        for gpu in node.gpus:
            if gpu.link_group is not None and (gpu.total, gpu.model) == (kind.total_mib, kind.model):
                groups.setdefault(gpu.link_group, []).append(gpu.uuid)
        enough = [groups[number] for number in sorted(groups) if len(groups[number]) >= gpus]
        for place, group in enumerate(enough):
            if place == len(sets):
                sets.append([])
            sets[place] += group
    return [tuple(uuids) for uuids in sets]
