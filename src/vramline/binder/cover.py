"""Which cards of a node are held, and what must be made or ended for those that pods use.

Everything here is a function of what the API server shows. kubelet gives whichever device it likes, so a
reservation made for one card may hold another; the card that it tells is the one that counts.
"""

import msgspec

from vramline.model.node import Node
from vramline.wire.reservation_pod import Reservation, name_reservation
from vramline.wire.uuids import name_card

__all__ = [
    "Claimed",
    "Situation",
    "Upkeep",
    "held_cards",
    "is_sliced",
    "next_ordinal",
    "plan_upkeep",
    "under_way",
    "uuids_of",
]


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """One node: its reservation pods, and who else has devices of its kubelet."""

    node: Node
    reservations: tuple[Reservation, ...] = ()
    strangers: bool = False
    """Whether kubelet also gives devices to pods that we did not place."""


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """Cards of a node by what pods have to do with them."""

    any: frozenset[str] = frozenset()
    """There is a claim, if only one of a pod whose memory is not free yet."""
    used: frozenset[str] = frozenset()
    """Pods that are on the node use it: it must be held."""
    awaited: frozenset[str] = frozenset()
    """Pods that are being bound wait for it."""


class Upkeep(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about the reservation pods of a node."""

    end: tuple[Reservation, ...] = ()
    make: tuple[str, ...] = ()
    """Cards for which another reservation is to be made."""
    lost: tuple[str, ...] = ()
    """Cards that pods use and that kubelet has given to somebody else."""


def held_cards(situation: Situation) -> dict[str, Reservation]:
    """Return the reservation that holds each card; of two that hold the same card the first one counts.

    A card whose UUID nobody told until now is the one for which the reservation was made.
    """
    node = situation.node
    known = {gpu.uuid for gpu in node.gpus}
    nameless = {gpu.uuid for gpu in node.gpus if gpu.uuid == name_card(node.name, gpu.index)}
    found: dict[str, Reservation] = {}
    told: set[str] = set()
    for each in _alive(situation):
        card = each.card or (each.planned if _is_certain(node) else "")
        if card in known:
            found.setdefault(card, each)
        elif card and card not in told and each.planned in nameless:
            found.setdefault(each.planned, each)
        told.add(card)
    return found


def uuids_of(held: dict[str, Reservation]) -> dict[str, str]:
    """Return what a container must be told to see each card."""
    return {card: each.card or card for card, each in held.items()}


def under_way(situation: Situation) -> list[Reservation]:
    """Return the reservations of which nobody knows yet what they will hold."""
    return [] if _is_certain(situation.node) else [each for each in _alive(situation) if not each.card]


def next_ordinal(situation: Situation, card: str) -> int:
    """Return the number of the next try for a card: the first whose name is not taken."""
    names = {each.name for each in situation.reservations}
    ordinal = 1
    while name_reservation(situation.node.name, card, ordinal) in names:
        ordinal += 1
    return ordinal


def plan_upkeep(situation: Situation, claimed: Claimed) -> Upkeep:
    """Return what must be done so that exactly the cards that pods use are held.

    Nothing is ever done to those pods.
    """
    held = held_cards(situation)
    over = [each for each in situation.reservations if each.failure and not each.ending]
    missing = sorted(claimed.used - held.keys())
    needed = {each.name for card, each in held.items() if card in claimed.any}
    needed |= {each.name for each in _alive(situation) if each.planned in claimed.awaited}
    needed |= {each.name for each in under_way(situation) if each.planned in claimed.any or missing}
    surplus = [each for each in _alive(situation) if each.name not in needed]
    if not missing:
        return Upkeep(end=(*over, *surplus))
    if over or len(_alive(situation)) >= 2 * len(situation.node.gpus):
        return Upkeep(end=(*over, *surplus), lost=tuple(missing))
    # Whatever else kubelet gave stays until the right card has come: it cannot be given again.
    make = () if under_way(situation) or any(each.ending for each in situation.reservations) else missing[:1]
    return Upkeep(make=tuple(make))


def _alive(situation: Situation) -> list[Reservation]:
    there = (each for each in situation.reservations if not each.failure and not each.ending)
    return sorted(there, key=lambda each: (each.created_at, each.name))


def is_sliced(node: Node) -> bool:
    """Whether kubelet offers more devices than there are cards."""
    return any(gpu.slots is not None for gpu in node.gpus)


def _is_certain(node: Node) -> bool:
    """Whether there is no choice: one card, with devices for all, and a UUID that its agent told."""
    return (
        len(node.gpus) == 1
        and is_sliced(node)
        and node.gpus[0].uuid != name_card(node.name, node.gpus[0].index)
    )
