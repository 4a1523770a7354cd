"""From a Kubernetes node, and its agent's report where there is one, to the node of the model.

Sources of inventory, best first: report, HAMi's register, GPU-feature-discovery labels, an operator's
annotation. The best one is believed; one that contradicts it makes the node say so instead of guessing.
Docs: docs/wire.md.
"""

from collections.abc import Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from vramline.errors import RequestError
from vramline.model.ask import RealtimeMode
from vramline.model.gpu import PhysicalGpu
from vramline.model.node import HostRoom, InventorySource, Node, NodeProblem, ProblemKind, Taint
from vramline.model.observation import Observation
from vramline.wire import keys
from vramline.wire.cards import (
    cards_by_hami,
    cards_by_labels,
    cards_by_report,
    cards_by_statement,
    keep_for_host,
    set_slots,
    with_slots,
)
from vramline.wire.gfd import GfdLabels, read_gfd
from vramline.wire.gpus_physical import read_gpus_physical
from vramline.wire.hami import decode_register, read_lock
from vramline.wire.inventory import Inventory, find_conflict, lower_scaled_totals
from vramline.wire.kubernetes import NodeObject, NodeSpec, NodeStatus, ObjectMeta, Quantities
from vramline.wire.platforms import recognise_platform
from vramline.wire.quantities import read_amount, read_whole
from vramline.wire.report_v1alpha1 import GpuReport, NodeCheck, ReportedGpu, observe
from vramline.wire.uuids import card_of, name_card

__all__ = ["NodeReading", "observations_in", "read_node", "same_inventory"]

_MAX_DEVICES = 1024 * 65_535

_OWN_MODES = {
    NodeCheck.STRICT: RealtimeMode.STRICT,
    NodeCheck.WARNING: RealtimeMode.WARNING,
    NodeCheck.DISABLED: RealtimeMode.DISABLED,
}

_INVENTORY = (
    "uuid",
    "index",
    "model",
    "total_mib",
    "reserved_mib",
    "health",
    "replicas",
    "unified",
    "numa",
    "link_group",
    "mig",
)
"""What a report says of a card itself; the rest is what was seen on it."""
_SHAPE = tuple(field for field in _INVENTORY if field != "uuid")
_READ_SHAPE = attrgetter(*_SHAPE)
_overwrite = msgspec.structs.force_setattr
_CardShape = tuple[Any, ...]
"""What a report says of a card besides its name, in the order of `_SHAPE`."""
_OF_CARDS = frozenset({keys.HAMI_REGISTER, keys.GPUS_PHYSICAL, keys.HAMI_CORDON})
"""Annotations of a node that tell of its cards."""


class NodeReading(msgspec.Struct, frozen=True, kw_only=True):
    """A node, what was seen on its cards (by UUID), and what an operator should know."""

    node: Node
    observations: dict[str, Observation]
    warnings: tuple[str, ...] = ()


class _Devices(msgspec.Struct, frozen=True):
    """What the node offers: devices for GPUs and their replicas (None: no such resource), MIG instances."""

    gpus: int | None
    instances: bool
    renamed: bool = False


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """The cards of a node, by the best source."""

    cards: tuple[PhysicalGpu, ...]
    source: InventorySource
    problem: NodeProblem | None = None
    warnings: tuple[str, ...] = ()


def read_node(node: NodeObject, report: GpuReport | None) -> NodeReading:
    """Translate one node. Raises `RequestError` where a single value is malformed."""
    subject = f"Node {node.name}"
    spec, status = node.spec or NodeSpec(), node.status or NodeStatus()
    offered = (status.capacity if status.allocatable is None else status.allocatable) or {}
    gfd = read_gfd(node.metadata.labels or {}, subject)
    devices, room = _read_offer(offered, gfd, subject)
    found = _find_cards(node, report, gfd, devices)
    read = Node(
        name=node.name,
        gpus=_without_kept(found.cards, room),
        problem=found.problem,
        source=found.source,
        advertised=devices.gpus,
        renamed=devices.renamed,
        ready=all(each.status == "True" for each in status.conditions or () if each.type == "Ready"),
        cordoned=bool(spec.unschedulable),
        labels=node.metadata.labels or {},
        taints=tuple(Taint(each.key, each.value or "", each.effect) for each in spec.taints or ()),
        host=room,
        platform=recognise_platform(node.metadata.labels or {}, report),
        has_hami=keys.HAMI_REGISTER in (node.metadata.annotations or {}) and bool(devices.gpus),
        hami_lock=read_lock((node.metadata.annotations or {}).get(keys.HAMI_LOCK, "")),
        realtime=_OWN_MODES.get(report.realtime_check) if report and report.realtime_check else None,
        realtime_enabled=report is not None and report.realtime_check is NodeCheck.ENABLED,
    )
    seen, notes = _list_observations(report, node.name)
    return NodeReading(node=read, observations=seen, warnings=(*found.warnings, *notes))


def same_inventory(one: GpuReport, other: GpuReport) -> bool:
    """Whether two reports tell of the same cards, whatever was seen on them."""
    if (one.gpus is None) != (other.gpus is None) or len(one.gpus or ()) != len(other.gpus or ()):
        return False
    pairs = zip(one.gpus or (), other.gpus or (), strict=True)
    told = (one.platform, one.realtime_check) == (other.platform, other.realtime_check)
    return told and all(_same_card(left, right) for left, right in pairs)


def observations_in(report: GpuReport) -> dict[str, Observation]:
    """Return what a report saw on each card, by UUID; nothing where it does not say when."""
    return _list_observations(report, report.node)[0]


def _same_card(one: ReportedGpu, other: ReportedGpu) -> bool:
    return all(getattr(one, field) == getattr(other, field) for field in _INVENTORY)


def _find_cards(node: NodeObject, report: GpuReport | None, gfd: GfdLabels, devices: _Devices) -> _Found:
    """Return the cards of a node; of nodes that differ in nothing but names, what follows is found once."""
    shape = _shape_of(node, report)
    if shape is None or report is None or report.gpus is None:
        return _weigh_sources(node, report, gfd, devices)
    common = _find_common(gfd, devices, shape)
    if common.problem is not None or common.warnings:  # to say whose they are
        return _weigh_sources(node, report, gfd, devices)
    name = node.name
    cards = [card.__copy__() for card in common.cards]  # type: ignore[attr-defined] # they were checked
    for card, gpu in zip(cards, report.gpus, strict=True):
        _overwrite(card, "uuid", gpu.uuid)
        _overwrite(card, "node", name)
    return _Found(cards=tuple(cards), source=common.source)


def _shape_of(node: NodeObject, report: GpuReport | None) -> tuple[_CardShape, ...] | None:
    """Return what a report says of its cards besides their names; None: there is more to it than that."""
    if report is None or not report.gpus:
        return None
    if node.metadata.annotations and not _OF_CARDS.isdisjoint(node.metadata.annotations):
        return None
    names = [gpu.uuid or "::" for gpu in report.gpus]
    if len({*names}) != len(names) or "::" in "\n".join(names):
        return None
    return tuple(map(_READ_SHAPE, report.gpus))


@lru_cache(maxsize=1024)
def _find_common(gfd: GfdLabels, devices: _Devices, shape: tuple[_CardShape, ...]) -> _Found:
    """Find the cards of a node of this sort, under names that nobody has."""
    gpus = [
        ReportedGpu(uuid=str(place), **dict(zip(_SHAPE, told, strict=True)))
        for place, told in enumerate(shape)
    ]
    report = GpuReport(node="", gpus=tuple(gpus))
    return _weigh_sources(NodeObject(metadata=ObjectMeta(name="")), report, gfd, devices)


def _weigh_sources(node: NodeObject, report: GpuReport | None, gfd: GfdLabels, devices: _Devices) -> _Found:
    """Believe the best source that lists cards, and compare the others with it."""
    sources, warnings = _list_sources(node, report, gfd, devices)
    best = next((source for source in sources if source.cards), None)
    cards: tuple[PhysicalGpu, ...] = ()
    if best is not None:
        cards, notes = _finish_cards(_add_slots(best, sources), node, gfd, devices)
        warnings += notes
    return _Found(
        cards=cards,
        source=best.source if best else InventorySource.NONE,
        problem=_find_problem(sources, best, devices),
        warnings=tuple(warnings),
    )


def _list_sources(
    node: NodeObject, report: GpuReport | None, gfd: GfdLabels, devices: _Devices
) -> tuple[list[Inventory], list[str]]:
    """Return what every source says, best first, with HAMi's scaling undone."""
    subject = f"Node {node.name}"
    annotations = node.metadata.annotations or {}
    reported = cards_by_report(report, node.name) if report else None
    stated = labelled = registered = None
    if keys.GPUS_PHYSICAL in annotations:
        statement = read_gpus_physical(annotations[keys.GPUS_PHYSICAL], subject)
        stated = cards_by_statement(statement, node.name, gfd)
    if gfd.count is not None or stated is None:  # a stated number is better than one made of devices
        labelled = cards_by_labels(gfd, node.name, devices.gpus, instances=devices.instances)
    warnings: list[str] = []
    if keys.HAMI_REGISTER in annotations:
        register = decode_register(annotations[keys.HAMI_REGISTER], subject=subject)
        registered = cards_by_hami(register, node.name)
        truth = reported or labelled or stated
        if truth is not None:
            registered, warnings = lower_scaled_totals(registered, truth)
    found = (reported, registered, labelled, stated)
    return [source for source in found if source is not None], warnings


def _add_slots(best: Inventory, sources: list[Inventory]) -> Inventory:
    """Let another source say how often a card is shared, where the best one does not."""
    if all(card.slots for card in best.cards):
        return best
    told = {card.uuid: card.slots for source in reversed(sources) for card in source.cards if card.slots}
    cards = (with_slots(card, told.get(card.uuid)) for card in best.cards)
    return msgspec.structs.replace(best, cards=tuple(cards))


def _finish_cards(
    best: Inventory, node: NodeObject, gfd: GfdLabels, devices: _Devices
) -> tuple[tuple[PhysicalGpu, ...], list[str]]:
    """Set slots, cordons and MIG mode, which no single source knows."""
    cards, warnings = best.cards, []
    if devices.instances and best.source is not InventorySource.GFD and not any(c.mig for c in cards):
        cards = tuple(msgspec.structs.replace(card, mig=True) for card in cards)
        warnings.append(
            "GPUs of this node are partitioned by MIG, and nothing says which; all are kept apart"
        )
    if not any(card.mig for card in cards):
        cards, notes = set_slots(cards, devices.gpus, gfd.replicas)
        warnings += notes
    cordoned = _read_cordons(node.metadata.annotations or {})
    for uuid in sorted(cordoned - {card.uuid for card in cards}):
        warnings.append(f"annotation {keys.HAMI_CORDON} names {uuid}, which is no GPU of this node")
    if cordoned:
        cards = tuple(
            msgspec.structs.replace(card, cordoned=True) if card.uuid in cordoned else card for card in cards
        )
    return cards, warnings


def _read_cordons(annotations: Mapping[str, str]) -> set[str]:
    words = annotations.get(keys.HAMI_CORDON, "").split(",")
    return {card_of(word.strip()) for word in words if word.strip()}


def _find_problem(sources: list[Inventory], best: Inventory | None, devices: _Devices) -> NodeProblem | None:
    for other in sources:
        if best is not None and other is not best:
            conflict = find_conflict(best, other)
            if conflict is not None:
                return NodeProblem(ProblemKind.INVENTORY_CONFLICT, conflict)
    if best is None and devices.gpus:
        detail = (
            f"kubelet advertises {devices.gpus} GPU devices, but nothing tells how many cards they are"
            f" and how large: no GpuReport, no {keys.HAMI_REGISTER}, no {keys.GFD_COUNT} with"
            f" {keys.GFD_MEMORY}, no {keys.GPUS_PHYSICAL}"
        )
        return NodeProblem(ProblemKind.UNKNOWN_INVENTORY, detail)
    return None


def _list_observations(report: GpuReport | None, node: str) -> tuple[dict[str, Observation], list[str]]:
    seen: dict[str, Observation] = {}
    if report is None or not report.gpus:
        return seen, []
    if report.observed_at is None:
        return seen, ["the GpuReport has no status.observedAt, so that nothing in it counts as observed"]
    warnings = []
    for position, gpu in enumerate(report.gpus):
        uuid = gpu.uuid or name_card(node, position if gpu.index is None else gpu.index)
        if "::" in uuid:
            uuid = card_of(uuid)
        if uuid not in seen:
            seen[uuid] = observe(gpu, report.observed_at)
        if gpu.used_mib is not None and gpu.used_mib > gpu.total_mib:
            warnings.append(f"{uuid} is reported to use {gpu.used_mib} MiB of {gpu.total_mib} MiB")
    return seen, warnings


def _without_kept(cards: tuple[PhysicalGpu, ...], room: HostRoom) -> tuple[PhysicalGpu, ...]:
    """Return the cards without what kubelet keeps of the machine's memory, where that is theirs."""
    if not any(card.unified for card in cards):
        return cards
    return tuple([keep_for_host(card, room) for card in cards])


def _read_offer(offered: Quantities, gfd: GfdLabels, subject: str) -> tuple[_Devices, HostRoom]:
    """Read what a node offers. Nodes of one sort offer the same, which is read once."""
    try:
        return _read_known_offer(tuple(offered.items()), gfd)
    except RequestError:  # to say whose it is
        return _count_devices(offered, gfd, subject), _read_room(offered, subject)


@lru_cache(maxsize=1024)
def _read_known_offer(
    offered: tuple[tuple[str, str | int | float], ...], gfd: GfdLabels
) -> tuple[_Devices, HostRoom]:
    told = dict(offered)
    return _count_devices(told, gfd, ""), _read_room(told, "")


def _count_devices(offered: Quantities, gfd: GfdLabels, subject: str) -> _Devices:
    gpus: int | None = None
    renamed = False
    instances = gfd.mig or gfd.mixed
    for key, value in offered.items():
        is_instance = key.startswith(keys.MIG_RESOURCE_PREFIX)
        if is_instance or key in (keys.GPU_COUNT, keys.GPU_COUNT_SHARED):
            field = f"status.allocatable[{key}]"
            number = read_whole(value, subject=subject, field=field, low=0, high=_MAX_DEVICES)
            instances = instances or (is_instance and number > 0)
            gpus = gpus if is_instance else (gpus or 0) + number
            renamed = renamed or (key == keys.GPU_COUNT_SHARED and number > 0)
    return _Devices(gpus, instances, renamed)


def _read_room(offered: Quantities, subject: str) -> HostRoom:
    def read(resource: str, scale: int) -> int | None:
        value = offered.get(resource)
        if value is None:
            return None
        return read_amount(value, subject=subject, field=f"status.allocatable.{resource}", scale=scale)

    return HostRoom(cpu_milli=read("cpu", 1000), memory_bytes=read("memory", 1), pods=read("pods", 1))
