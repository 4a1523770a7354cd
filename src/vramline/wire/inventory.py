"""One source's list of a node's cards, and whether two sources can both be true."""

import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from vramline.model.gpu import PhysicalGpu
from vramline.model.node import InventorySource
from vramline.units import Mib, format_mib

__all__ = ["Inventory", "find_conflict", "lower_scaled_totals"]

_NOISE = re.compile(r"[^a-z0-9]")
_SHARED = re.compile(r"shared$")
_TOLERANCE_PERCENT = 2


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The cards of a node as one source tells them."""

    source: InventorySource
    cards: tuple[PhysicalGpu, ...]
    one_sort: bool = False
    """The source knows one sort of card and lists it for all; on unequal cards it is true of one of them."""


def find_conflict(best: Inventory, other: Inventory) -> str | None:
    """Return how `other` contradicts `best`: number of cards, model, or a total that is more than 2 % off.

    What one side does not say contradicts nothing. Cards in MIG mode are not compared, because what is said
    of them may be about their instances.
    """
    if any(card.mig for card in (*best.cards, *other.cards)):
        return None
    if len(best.cards) != len(other.cards):
        return _say(best, _count(best), other, _count(other))
    if other.one_sort or best.one_sort:
        if any(_agree(left, right) for left in best.cards for right in other.cards):
            return None
        left, right = best.cards[0], other.cards[0]
    else:
        odd = [pair for pair in _pair(best.cards, other.cards) if not _agree(*pair)]
        if not odd:
            return None
        left, right = odd[0]
    return _say(best, _describe(left), other, _describe(right))


def lower_scaled_totals(hami: Inventory, truth: Inventory) -> tuple[Inventory, list[str]]:
    """Undo HAMi's memory scaling: where `truth` gives less for a card, that is its total.

    HAMi scales all cards of a node by one factor. Where the truth is known of one sort of card only, the
    others are lowered by the factor that it shows.
    """
    if not hami.cards or not truth.cards or any(card.mig for card in truth.cards):
        return hami, []
    if truth.one_sort:
        totals = _lower_by_factor(hami.cards, truth.cards[0])
    else:
        told = {left.uuid: right.total for left, right in _pair(hami.cards, truth.cards)}
        totals = [_lower(card.total, told.get(card.uuid, card.total)) for card in hami.cards]
    lowered = [
        msgspec.structs.replace(card, total=total) for card, total in zip(hami.cards, totals, strict=True)
    ]
    warnings = [
        f"HAMi registers {format_mib(card.total)} for {card.uuid}, which is scaled up;"
        f" {truth.source} gives {format_mib(total)}, and that counts"
        for card, total in zip(hami.cards, totals, strict=True)
        if total != card.total
    ]
    return msgspec.structs.replace(hami, cards=tuple(lowered)), warnings


def _lower_by_factor(cards: tuple[PhysicalGpu, ...], sort: PhysicalGpu) -> list[Mib]:
    scaled = [card.total for card in cards if _same_model(card, sort) and _is_less(sort.total, card.total)]
    if not scaled:
        return [card.total for card in cards]
    largest = max(scaled)
    return [
        sort.total if _same_model(card, sort) else Mib(max(1, card.total * sort.total // largest))
        for card in cards
    ]


def _lower(total: Mib, told: Mib) -> Mib:
    return told if _is_less(told, total) else total


def _is_less(one: int, other: int) -> bool:
    return one < other and not _close(other, one)


def _pair(
    ours: tuple[PhysicalGpu, ...], theirs: tuple[PhysicalGpu, ...]
) -> Iterable[tuple[PhysicalGpu, PhysicalGpu]]:
    """Put the cards of two sources side by side: by UUID where both know it, else by size."""
    by_uuid = {card.uuid: card for card in theirs}
    if all(card.uuid in by_uuid for card in ours):
        return [(card, by_uuid[card.uuid]) for card in ours]
    return zip(sorted(ours, key=_size), sorted(theirs, key=_size), strict=False)


def _size(card: PhysicalGpu) -> tuple[int, str]:
    return card.total, _plain(card.model)


def _agree(one: PhysicalGpu, other: PhysicalGpu) -> bool:
    return _same_model(one, other) and _close(one.total, other.total)


def _close(one: int, other: int) -> bool:
    return abs(one - other) * 100 <= max(one, other) * _TOLERANCE_PERCENT


def _same_model(one: PhysicalGpu, other: PhysicalGpu) -> bool:
    return not one.model or not other.model or _plain(one.model) == _plain(other.model)


@lru_cache(maxsize=1024)
def _plain(model: str) -> str:
    """Strip what sources write differently: case, dashes, spaces, `-SHARED`, the maker's name in front."""
    return _SHARED.sub("", _NOISE.sub("", model.lower())).removeprefix("nvidia")


def _count(inventory: Inventory) -> str:
    return f"{len(inventory.cards)} GPU{'' if len(inventory.cards) == 1 else 's'}"


def _describe(card: PhysicalGpu) -> str:
    return f"{card.model} with {format_mib(card.total)}" if card.model else format_mib(card.total)


def _say(best: Inventory, ours: str, other: Inventory, theirs: str) -> str:
    return f"{best.source}: {ours}; {other.source}: {theirs}"
