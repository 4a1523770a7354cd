"""The cards of a node as each source tells them, and how many pods may share each."""

from collections.abc import Sequence

import msgspec

from vramline.errors import RequestError
from vramline.model.gpu import Health, PhysicalGpu
from vramline.model.node import HostRoom, InventorySource
from vramline.model.observation import NOT_REPORTED
from vramline.units import MAX_MIB, Mib
from vramline.wire import keys
from vramline.wire.gfd import GfdLabels
from vramline.wire.gpus_physical import StatedCard
from vramline.wire.hami import RegisteredGpu
from vramline.wire.inventory import Inventory
from vramline.wire.report_v1alpha1 import GpuReport
from vramline.wire.uuids import card_of, name_card

__all__ = [
    "cards_by_hami",
    "cards_by_labels",
    "cards_by_report",
    "cards_by_statement",
    "keep_for_host",
    "set_slots",
    "with_slots",
]


def cards_by_report(report: GpuReport, node: str) -> Inventory | None:
    """List the cards of a report; None: its agent has not looked yet."""
    if report.gpus is None:
        return None
    cards, devices = [], []
    for position, gpu in enumerate(report.gpus):
        index = position if gpu.index is None else gpu.index
        device = gpu.uuid or name_card(node, index)
        card = PhysicalGpu(
            uuid=card_of(device),
            node=node,
            index=index,
            model=gpu.model or "",
            total=Mib(gpu.total_mib),
            reserved=NOT_REPORTED if gpu.reserved_mib is None else Mib(gpu.reserved_mib),
            slots=gpu.replicas,
            unified=bool(gpu.unified),
            numa=gpu.numa,
            link_group=gpu.link_group,
            health=gpu.health or Health.HEALTHY,
            mig=bool(gpu.mig),
        )
        cards.append(card)
        devices.append(device)
    collapsed = _collapse(cards, devices, "status.gpus[{}].uuid", f"GpuReport {node}")
    return Inventory(source=InventorySource.REPORT, cards=collapsed)


def cards_by_hami(register: Sequence[RegisteredGpu], node: str) -> Inventory:
    """List the cards that HAMi's plugin registered."""
    subject, cards, devices = f"Node {node}", [], []
    numbered = len({gpu.index for gpu in register}) == len(register)
    for position, gpu in enumerate(register):
        field = f"annotation {keys.HAMI_REGISTER}, card {position + 1}"
        _check_registered(gpu, field, subject)
        device = gpu.id or name_card(node, gpu.index if numbered else position)
        card = PhysicalGpu(
            uuid=card_of(device),
            node=node,
            index=gpu.index if numbered else position,
            model=gpu.type,
            total=Mib(gpu.devmem),
            slots=gpu.count or None,
            cores=gpu.devcore or 100,
            numa=gpu.numa if gpu.numa >= 0 else None,
            health=Health.HEALTHY if gpu.health else Health.UNHEALTHY,
            mig=gpu.mode == "mig",
        )
        cards.append(card)
        devices.append(device)
    collapsed = _collapse(cards, devices, f"annotation {keys.HAMI_REGISTER}, card {{}}", subject, first=1)
    return Inventory(source=InventorySource.HAMI, cards=collapsed)


def cards_by_labels(
    gfd: GfdLabels, node: str, advertised: int | None, *, instances: bool
) -> Inventory | None:
    """List the cards that the labels describe; None: they do not tell memory or number.

    `instances`: the node offers MIG instances. Labels then describe whole cards if kubelet offers as many.
    """
    count = gfd.count
    if count is None and advertised is not None:
        replicas = gfd.replicas or (0 if gfd.may_be_replicated else 1)
        count = advertised // replicas if replicas and advertised % replicas == 0 else None
    if not count or gfd.memory is None:
        return None
    whole = (advertised or 0) // (gfd.replicas or 1)
    mig = gfd.mig or (instances and whole != count)
    cards = tuple(
        PhysicalGpu(
            uuid=name_card(node, index),
            node=node,
            index=index,
            model=gfd.model,
            total=Mib(gfd.memory),
            mig=mig,
        )
        for index in range(count)
    )
    return Inventory(source=InventorySource.GFD, cards=cards, one_sort=True)


def cards_by_statement(stated: Sequence[StatedCard], node: str, gfd: GfdLabels) -> Inventory | None:
    """List the cards that an operator stated; None: neither the statement nor a label tells their memory."""
    cards = []
    for index, card in enumerate(stated):
        total = card.total or gfd.memory
        if total is None:
            return None
        model = card.model or ("" if card.total else gfd.model)
        cards.append(
            PhysicalGpu(uuid=name_card(node, index), node=node, index=index, model=model, total=Mib(total))
        )
    return Inventory(source=InventorySource.ANNOTATION, cards=tuple(cards))


def set_slots(
    cards: tuple[PhysicalGpu, ...], advertised: int | None, replicas: int | None
) -> tuple[tuple[PhysicalGpu, ...], list[str]]:
    """Decide how many pods may share each card. Replicas multiply slots, never bytes.

    What kubelet advertises, divided by the number of cards, counts where it is whole; else what the label
    says. A source that speaks of each card by itself is only overruled by kubelet advertising more: fewer
    may mean that a device is unhealthy.
    """
    told = [card.slots for card in cards]
    share = advertised // len(cards) if advertised and advertised % len(cards) == 0 else None
    known = [each for each in told if each is not None]
    if len(known) == len(cards):
        overruled = share is not None and advertised is not None and advertised > sum(known)
        slots = [share] * len(cards) if overruled and len(set(known)) == 1 else told
        expected = sum(known)
    else:
        slots = [each or share or replicas for each in told]
        expected = (replicas or 1) * len(cards)
    limited = tuple(
        with_slots(card, each if each and each > 1 else None) for card, each in zip(cards, slots, strict=True)
    )
    said = bool(known) or replicas is not None
    return limited, _compare_devices(cards, advertised, expected, said=said)


def keep_for_host(card: PhysicalGpu, room: HostRoom) -> PhysicalGpu:
    """Return the card without what kubelet keeps of a machine whose memory is also the card's."""
    if not card.unified or room.memory_bytes is None:
        return card
    kept = min(card.total - room.memory_bytes // 2**20, card.total - 1)
    return msgspec.structs.replace(card, reserved=Mib(kept)) if kept > card.total - card.usable else card


def with_slots(card: PhysicalGpu, slots: int | None) -> PhysicalGpu:
    """Return the card with so many slots."""
    return card if card.slots == slots else msgspec.structs.replace(card, slots=slots)


def _compare_devices(
    cards: tuple[PhysicalGpu, ...], advertised: int | None, expected: int, *, said: bool
) -> list[str]:
    if advertised is None or advertised == expected:
        return []
    count = f"{len(cards)} physical GPU{'s' if len(cards) > 1 else ''}"
    if said:
        return [
            f"kubelet advertises {advertised} devices for {count}, but {expected} replicas are configured"
        ]
    if advertised % len(cards) == 0 and advertised > 0:
        return []
    return [f"kubelet advertises {advertised} devices for {count}"]


def _collapse(
    listed: Sequence[PhysicalGpu], devices: Sequence[str], field: str, subject: str, *, first: int = 0
) -> tuple[PhysicalGpu, ...]:
    """Fold replica ids into their cards; an id twice is refused. `field` names the one at a position."""
    if len({card.uuid for card in listed}) == len(listed):
        return tuple(listed)
    known: set[str] = set()
    cards: dict[str, PhysicalGpu] = {}
    seen: dict[str, int] = {}
    for position, (device, card) in enumerate(zip(devices, listed, strict=True), start=first):
        same = cards.setdefault(card.uuid, card)
        if device in known or same.total != card.total:
            raise RequestError(
                subject=subject,
                field=field.format(position),
                value=device,
                problem="is listed twice" if device in known else "has two totals",
                accepted="each card once",
            )
        known.add(device)
        seen[card.uuid] = seen.get(card.uuid, 0) + 1
    return tuple(
        msgspec.structs.replace(card, slots=max(card.slots or 1, seen[uuid])) if seen[uuid] > 1 else card
        for uuid, card in cards.items()
    )


def _check_registered(gpu: RegisteredGpu, field: str, subject: str) -> None:
    for name, value, low, high in (
        ("devmem", gpu.devmem, 1, MAX_MIB),
        ("count", gpu.count, 0, 65_535),
        ("devcore", gpu.devcore, 0, 10_000),
        ("index", gpu.index, 0, 1023),
        ("numa", gpu.numa, -1, 1023),
    ):
        if not low <= value <= high:
            raise RequestError(
                subject=subject,
                field=f"{field}, {name}",
                value=value,
                problem="is not a believable number",
                accepted=f"{low} to {high}",
            )
