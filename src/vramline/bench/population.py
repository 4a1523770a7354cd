"""A busy cluster made from a seed: machines, cards, and what is on them.

Every hundredth machine has larger cards, and all of those are taken but one, so that an ask for as much has
exactly one right answer. What is free where is worked out here in a few lines of its own, for others to be
compared with. `population_objects` writes it as an API server would hold it.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["RARE_MIB", "Card", "HeldClaim", "Machine", "Population", "PopulationShape"]

RARE_MIB = 130_000
"""An ask that only the larger cards can hold, and of those only the one that is empty."""

_MARGIN_MIB = 100
"""The scheduler's own default."""
_COMMON = (
    ("NVIDIA H100 80GB HBM3", 81_559, 550),
    ("NVIDIA A100-SXM4-40GB", 40_960, 460),
    ("NVIDIA L40S", 46_068, 480),
    ("Tesla T4", 15_360, 450),
)
_RARE = ("NVIDIA H200", 143_771, 600)
_RARE_EVERY = 100
_STRANGER_MIB = 2_048
_ROUND = (
    *(250, 500, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 10_000, 12_000, 16_000, 20_000, 24_000, 30_000),
    *(40_000, 48_000, 64_000, 80_000, 100_000, 120_000),
)
"""People ask for round amounts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulationShape:
    """How large a cluster."""

    nodes: int
    gpus: int = 8
    """Cards on each node."""
    pods: int
    """Pods that run, each with a claim on one card."""
    waiting: int = 0
    """Pods that ask and have no node yet."""
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldClaim:
    """What a running pod holds on a card."""

    pod: int
    mib: int
    used: int


@dataclass(slots=True, kw_only=True)
class Card:
    """One card, and everything that is on it."""

    uuid: str
    usable: int
    claims: list[HeldClaim] = field(default_factory=list)
    stranger: int = 0
    """What a process holds that nobody manages."""

    def free(self) -> int:
        """Return what may still be promised here."""
        held = sum(max(claim.mib, claim.used) for claim in self.claims)
        return self.usable - _MARGIN_MIB - held - self.stranger


@dataclass(slots=True, kw_only=True)
class Machine:
    """One node."""

    name: str
    model: str
    total: int
    reserved: int
    cards: list[Card]


class Population:
    """Machines with what is on them."""

    def __init__(self, shape: PopulationShape) -> None:
        self.shape = shape
        self.homes: list[tuple[Machine, Card]] = []
        """Where each running pod is, by its number."""
        self._chance = random.Random(shape.seed)  # noqa: S311 — a benchmark, not a secret
        self.machines = [self._machine(number) for number in range(shape.nodes)]
        large = self.machines[::_RARE_EVERY]
        self.rare_machine = large[shape.seed % len(large)]
        """The only one with an empty card of the large kind, which is its last."""
        self._fill_large_cards(large)
        self._fill_others()
        self._let_strangers_in()

    @property
    def names(self) -> list[str]:
        """The names of all nodes."""
        return [machine.name for machine in self.machines]

    def nodes_with(self, mib: int, gpus: int = 1) -> set[str]:
        """Return the nodes that have this much free on so many cards."""
        return {
            machine.name
            for machine in self.machines
            if sum(card.free() >= mib for card in machine.cards) >= gpus
        }

    def _machine(self, number: int) -> Machine:
        kind = _RARE if number % _RARE_EVERY == 0 else _COMMON[number % len(_COMMON)]
        model, total, reserved = kind
        cards = [
            Card(uuid=f"GPU-{number:08x}-0000-4000-8000-{index:012x}", usable=total - reserved)
            for index in range(self.shape.gpus)
        ]
        return Machine(
            name=f"gpu-node-{number:05d}", model=model, total=total, reserved=reserved, cards=cards
        )

    def _fill_large_cards(self, large: list[Machine]) -> None:
        """Give every large card but one a pod beside which a second of the rare size has no room."""
        kept = self.rare_machine.cards[-1]
        places = [(machine, card) for machine in large for card in machine.cards if card is not kept]
        for machine, card in places[: self.shape.pods]:
            self._put(machine, card, mib=card.usable - self._chance.randrange(20_000, 60_000))

    def _fill_others(self) -> None:
        """Deal the other pods out evenly, in an order of chance, so that they take up to two thirds."""
        kept = self.rare_machine.cards[-1]
        common = [machine for number, machine in enumerate(self.machines) if number % _RARE_EVERY]
        places = [(machine, card) for machine in common for card in machine.cards]
        places = places or [(self.rare_machine, card) for card in self.rare_machine.cards if card is not kept]
        rest = self.shape.pods - len(self.homes)
        on_each = max(1, -(-rest // max(1, len(places))))
        for machine, card in self._deal(places, rest):
            self._put(machine, card, mib=int(card.usable * self._chance.uniform(0.2, 0.66)) // on_each)

    def _deal(self, places: list[tuple[Machine, Card]], rest: int) -> Iterator[tuple[Machine, Card]]:
        while rest > 0 and places:
            chosen = self._chance.sample(places, min(rest, len(places)))
            yield from chosen
            rest -= len(chosen)

    def _put(self, machine: Machine, card: Card, *, mib: int) -> None:
        mib = next((amount for amount in reversed(_ROUND) if amount <= mib), max(1, mib))
        used = int(mib * self._chance.uniform(0.5, 1.0))
        card.claims.append(HeldClaim(pod=len(self.homes), mib=mib, used=used))
        self.homes.append((machine, card))

    def _let_strangers_in(self) -> None:
        """Put a process that nobody manages on an eighth of the cards."""
        for machine in self.machines:
            for card in machine.cards:
                welcome = card is not self.rare_machine.cards[-1] and card.free() > _STRANGER_MIB
                if welcome and self._chance.random() < 0.125:
                    card.stranger = _STRANGER_MIB
