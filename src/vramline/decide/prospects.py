"""The usual asks as arrays over the kinds of cards there are: what policies need to think ahead.

Cards with the same memory, slots and model are of one kind; a cluster has a handful. What an ask means on
a card, whether it may go there and what its residuals are worth is the same for all cards of a kind.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from vramline.decide.filters import is_wanted
from vramline.decide.pricing import Asked, Prices, asked_of_kinds
from vramline.model.ask import Constraints, MibSize, ShareSize, Size, UnsizedSize, WholeSize
from vramline.model.columns import CardKind, GpuColumns
from vramline.model.fleet import Fleet
from vramline.model.mix import AskClass
from vramline.model.reason import FITS

__all__ = [
    "NOWHERE",
    "Prospects",
    "can_look_ahead",
    "know_prospects",
    "known_prospects",
    "look_ahead",
    "sizes_on_kinds",
]

NOWHERE = 2**40
"""The size of an ask on a card that it may not use."""

_MOST_WIDE = 12
"""So many classes that want much of a node at once count although they are not typical."""

_TIGHT = 0.9
"""From this CPU load on, pods without cards may lack CPU: it is then left in pieces that they can use."""

_MOST_CARDS = 2**15 - 1
"""More cards than a node has."""

_STEPS = 4
"""Steps towards the prices of sizes at a time, where nobody is to wait for them: each takes up to half a
millisecond, and a few hundred at most are needed."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Prospects:
    """The pods to come, by class m of the mix that wants cards, on kind k of card."""

    count: Floats
    """[m] How often the class came: whole numbers, so that sums of MiB × count are exact in any order."""
    total: float
    """How often any of the classes came, those that want no card among them."""
    counts_wide: bool
    """Whether classes of several cards count however seldom they come; else typical classes alone do."""
    cpu: Floats
    gpus: Ints
    size: Floats
    """[k, m] MiB on each card, or `NOWHERE`."""
    host_cpu: Floats
    """Milli-CPU of each typical class that wants no card; none while CPU is plenty."""
    host_count: Floats
    """How often it came, times its milli-CPU."""
    mib_of_cpu: float
    """MiB that are asked for with each milli-CPU; 0: nobody asks for CPU."""
    values: Floats
    """[k, 0…PARTS] What a residual, in thousandths of the card, can still be cut into, in cards."""
    price: Floats
    """[k, 0…PARTS] What an ask of so many thousandths is worth, in cards; 0 for unusual sizes."""
    promise: Ints
    """[k] MiB of an empty card, at least 1."""
    pressure: Floats
    """[k] How much of these cards is wanted by asks that can use no other."""
    cpu_load: float
    """How scarce CPU is compared with GPU memory: 1 means that both run out together; 0: not known."""
    reference: float
    """MiB of a typical card, so that costs do not depend on how large cards are."""
    cpu_with: Floats = field(init=False)
    """[k, m] Milli-CPU that a pod takes with each MiB."""
    wanted: npt.NDArray[np.int16] = field(init=False)
    """[m] How many cards the class wants; empty where no class wants more than one."""
    most_cpu: float = field(init=False)
    """The most CPU that any class wants."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cpu_with", self.cpu / (self.size * self.gpus))
        several = np.minimum(self.gpus, _MOST_CARDS).astype(np.int16)
        object.__setattr__(self, "wanted", several if (several > 1).any() else several[:0])
        object.__setattr__(self, "most_cpu", float(self.cpu.max(initial=0.0)))


@dataclass(frozen=True, slots=True)
class _Known:
    """Prospects, and what they were computed from; without a key they stand in until sizes are priced."""

    key: object
    prospects: Prospects

    def fork(self) -> "_Known":
        """Return the same for a copy of the fleet."""
        return self


@dataclass(frozen=True, slots=True)
class _Draft:
    """What is asked of each kind of card: to be priced, and priced no more than once a mix."""

    key: object
    asked: list[Asked]

    def fork(self) -> "_Draft":
        """Return the same for a copy of the fleet."""
        return self


def can_look_ahead(fleet: Fleet) -> bool:
    """Whether enough is known of what is asked for; of one node alone, only what its fleet knew."""
    if fleet.is_picture:
        whole: _Known | None = fleet.remembered.get("prospects")
        return whole is not None and len(whole.prospects.size) == len(fleet.columns.kinds)
    return fleet.mix.is_known


def look_ahead(fleet: Fleet, *, counts_wide: bool = True) -> Prospects:
    """Return the prospects of a fleet's mix on its cards; remembered while neither changes.

    A picture of one node looks ahead with the whole fleet that it was taken of. Where a fleet thinks in
    steps, what it knew before stands until sizes are priced anew; within one generation nothing changes.
    """
    known: _Known | None = fleet.remembered.get("prospects")
    if known is None or (
        not fleet.is_picture and (known.key, known.prospects.counts_wide) != (_key(fleet), counts_wide)
    ):
        return _think(fleet, known, counts_wide=counts_wide)
    return known.prospects


def _think(fleet: Fleet, known: _Known | None, *, counts_wide: bool) -> Prospects:
    """Go on with pricing the sizes that are asked for, and look ahead as soon as all are."""
    prices: Prices = fleet.remembered.setdefault("prices", Prices())
    draft = _draft(fleet)
    steps = math.inf
    if fleet.thinks_in_steps:
        steps = _STEPS if prices.seen != fleet.generation and not prices.rests else 0
    prices.seen = fleet.generation
    if prices.work(draft.asked, steps=steps):
        return know_prospects(fleet, _compute(fleet, prices, draft.asked, counts_wide=counts_wide))
    if known is not None and len(known.prospects.size) == len(fleet.columns.kinds):
        return known.prospects
    stand_in = _Known(None, _compute(fleet, prices, draft.asked, counts_wide=counts_wide))
    fleet.remembered["prospects"] = stand_in
    return stand_in.prospects


def _draft(fleet: Fleet) -> _Draft:
    """Return what is asked of each kind of card by the mix in its present version, wherever cards are."""
    key, draft = (fleet.mix, fleet.mix.version, len(fleet.columns.kinds)), fleet.remembered.get("draft")
    if draft is None or draft.key != key:
        every = _Classes(fleet, fleet.mix.counts.items())
        demand = np.where(every.gpus == 1, every.count, 0.0)
        draft = _Draft(key, asked_of_kinds(fleet.columns.kinds, every.size, demand))
        fleet.remembered["draft"] = draft
    asked: _Draft = draft
    return asked


def known_prospects(fleet: Fleet) -> Prospects | None:
    """Return the prospects that a fleet was last looked at with; None: nobody has looked ahead yet."""
    known: _Known | None = fleet.remembered.get("prospects")
    return None if known is None else known.prospects


def know_prospects(fleet: Fleet, prospects: Prospects) -> Prospects:
    """Remember these as the prospects of a fleet as it is now."""
    fleet.remembered["prospects"] = _Known(_key(fleet), prospects)
    return prospects


def _key(fleet: Fleet) -> tuple[object, ...]:
    """Return what prospects are computed from."""
    return (fleet.mix, fleet.mix.version, fleet.columns.layout, len(fleet.columns.kinds))


def sizes_on_kinds(columns: GpuColumns, asked: AskClass) -> Ints:
    """Return the MiB that an ask of a class takes on each kind of card, `NOWHERE` where it may not go."""
    return np.array([_size_on(kind, asked) for kind in columns.kinds], dtype=np.int64)


def _compute(fleet: Fleet, prices: Prices, asked: list[Asked], *, counts_wide: bool) -> Prospects:
    listed = _Classes(fleet, [*fleet.mix.typical, *(_wide(fleet) if counts_wide else ())])
    everything = _Classes(fleet, fleet.mix.counts.items())
    kinds, capacity = fleet.columns.kinds, _capacity(fleet.columns)
    demand = _demand_per_kind(everything.size, everything.count * everything.gpus, capacity)
    values, price = prices.of(asked)
    wanted_cpu = everything.count * everything.cpu
    cpu_load = _cpu_load(fleet, float(wanted_cpu.sum()), demand, capacity)
    ours, hosts = listed.gpus > 0, (listed.gpus == 0) & (listed.cpu > 0) & (cpu_load >= _TIGHT)
    cpu_of_cards = float(wanted_cpu[everything.gpus > 0].sum())
    return Prospects(
        count=listed.count[ours],
        total=max(float(listed.count.sum()), 1.0),
        counts_wide=counts_wide,
        cpu=listed.cpu[ours].astype(np.float64),
        gpus=listed.gpus[ours],
        size=listed.size[:, ours].astype(np.float64),
        host_cpu=listed.cpu[hosts].astype(np.float64),
        host_count=listed.count[hosts] * listed.cpu[hosts],
        mib_of_cpu=float(demand.sum()) / cpu_of_cards if cpu_of_cards else 0.0,
        values=values,
        price=price,
        promise=np.array([max(kind.promise, 1) for kind in kinds], dtype=np.int64),
        pressure=_pressure(demand, everything.constrained, capacity),
        cpu_load=cpu_load,
        reference=_reference(kinds, capacity),
    )


def _wide(fleet: Fleet) -> list[tuple[AskClass, int]]:
    """Return the most frequent classes beside the typical ones that want at least half a node's cards.

    They come seldom, but want much when they come: what a node loses to them must not go unseen.
    """
    typical, widest = dict(fleet.mix.typical), int(fleet.columns.widths.max(initial=0))
    rare = [
        (asked, n)
        for asked, n in fleet.mix.counts.items()
        if asked.gpus > 1 and 2 * asked.gpus >= widest and asked not in typical
    ]
    return sorted(rare, key=lambda each: (-each[1], msgspec.msgpack.encode(each[0])))[:_MOST_WIDE]


class _Classes:
    """Classes of a mix as arrays."""

    def __init__(self, fleet: Fleet, counted: Iterable[tuple[AskClass, int]]) -> None:
        listed = list(counted)
        self.count = np.array([count for _, count in listed], dtype=np.float64)
        self.cpu = np.array([asked.cpu_milli for asked, _ in listed], dtype=np.int64)
        self.gpus = np.array([asked.gpus for asked, _ in listed], dtype=np.int64)
        self.constrained = np.array(
            [bool(asked.use_models or asked.avoid_models) for asked, _ in listed], dtype=np.bool_
        )
        self.size = np.full((len(fleet.columns.kinds), len(listed)), NOWHERE, dtype=np.int64)
        plain: dict[int, int] = {}
        for m, (asked, _) in enumerate(listed):
            if isinstance(asked.size, MibSize) and not self.constrained[m]:
                plain[m] = asked.size.mib
            else:
                self.size[:, m] = sizes_on_kinds(fleet.columns, asked)
        if plain:  # there may be thousands of these, and they are the same MiB wherever they go
            self.size[:, list(plain)] = _plain_sizes(fleet.columns.kinds, list(plain.values()))


def _plain_sizes(kinds: list[CardKind], mib: list[int]) -> Ints:
    """Return [k, m] the sizes of asks for MiB on whatever card they fit."""
    promise, sizes = np.array([kind.promise for kind in kinds])[:, None], np.array(mib, dtype=np.int64)
    return np.where((sizes > 0) & (sizes <= promise), sizes, NOWHERE)


def _size_on(kind: CardKind, asked: AskClass) -> int:
    if asked.size is None or not is_wanted(
        kind.model.lower(), Constraints(use_models=asked.use_models, avoid_models=asked.avoid_models)
    ):
        return NOWHERE
    mib = _mib(kind, asked.size)
    return mib if 0 < mib <= kind.promise else NOWHERE


def _mib(kind: CardKind, size: Size) -> int:
    match size:
        case MibSize(mib):
            return mib
        case ShareSize(numerator, denominator):
            return kind.promise * numerator // denominator
        case WholeSize():
            return kind.promise
        case UnsizedSize():
            return kind.promise // kind.slots


def _capacity(columns: GpuColumns) -> Floats:
    """Return the MiB that the cards of each kind can promise together."""
    usable = columns.static_code == FITS
    promise = columns.promise[usable].astype(np.float64)
    capacity = np.bincount(columns.kind[usable], weights=promise, minlength=len(columns.kinds))
    return capacity.astype(np.float64)


def _demand_per_kind(size: Ints, cards: Floats, capacity: Floats) -> Floats:
    """Return [k, m] MiB wanted, each class spread over the cards that it may use."""
    may = size < NOWHERE
    room = np.where(may, capacity[:, None], 0.0)
    part = room / np.maximum(room.sum(axis=0), 1.0)
    demand: Floats = np.where(may, size, 0) * part * cards
    return demand


def _pressure(demand: Floats, constrained: npt.NDArray[np.bool_], capacity: Floats) -> Floats:
    """Return what constrained asks want of each kind over what it has, if demand just filled the cluster."""
    scale = capacity.sum() / max(demand.sum(), 1.0)
    pressure: Floats = demand[:, constrained].sum(axis=1) * scale / np.maximum(capacity, 1.0)
    return pressure


def _cpu_load(fleet: Fleet, wanted_cpu: float, demand: Floats, capacity: Floats) -> float:
    """Return how much of the CPU is wanted over how much of the memory is."""
    if fleet.hosts is None or not demand.sum() or not capacity.sum():
        return 0.0
    cpu = sum(node.host.cpu_milli or 0 for node in fleet.nodes if node.gpus)
    if not cpu:
        return 0.0
    return float((wanted_cpu / cpu) / (demand.sum() / capacity.sum()))


def _reference(kinds: list[CardKind], capacity: Floats) -> float:
    """Return the mean size of a card."""
    cards = sum(capacity[k] / kind.promise for k, kind in enumerate(kinds) if kind.promise > 0)
    return float(capacity.sum() / cards) if cards else 1.0
