"""What happens on the cards of a made-up cluster: pods that ask in MiB, strangers, and memory that lingers.

Everything follows from a seed. docs/bench.md has the distributions in words.
"""

import random
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Stranger", "VramCard", "VramPod", "VramShape", "VramWorld", "make_world"]

_CARDS = (
    ("Tesla T4", 15_360, 450, 10),
    ("NVIDIA L40S", 46_068, 480, 10),
    ("NVIDIA A100-SXM4-40GB", 40_960, 460, 1),
    ("NVIDIA A100-SXM4-80GB", 81_920, 540, 1),
    ("NVIDIA H100 80GB HBM3", 81_559, 550, 1),
)
"""Model, MiB in all, MiB that the driver keeps, and how often the card is advertised."""
_ASKS = (2_000, 4_096, 6_000, 8_000, 12_288, 16_000, 24_000, 40_000, 70_000)
_ASK_WEIGHTS = (14, 16, 12, 18, 12, 12, 9, 5, 2)
_LIFE_S = 600.0
_OFFERED = 1.15
"""How much is asked for at a time, of what there is: more than fits, so that room is scarce."""
_STRANGERS_A_CARD = 1.5
"""Processes that nobody manages, on each card over the whole run."""


class VramCard(NamedTuple):
    """One card."""

    name: str
    node: str
    model: str
    total: int
    reserved: int
    replicas: int

    @property
    def usable(self) -> int:
        """What processes can have of it."""
        return self.total - self.reserved


class VramPod(NamedTuple):
    """A pod, and what will become of it wherever it is placed."""

    name: str
    at: float
    gpus: int
    ask: int
    """MiB on each card."""
    use: int
    """What it really takes, at most what it asks for."""
    start_s: float
    """From the binding until it takes its memory."""
    life_s: float
    """From then until its deletion is asked for."""
    grace_s: float
    """From then until its containers have ended and its object is gone."""
    lag_s: float
    """From then until the card has the memory back."""


class Stranger(NamedTuple):
    """A process that nobody manages."""

    name: str
    at: float
    card: str
    mib: int
    stay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VramShape:
    """How much of it."""

    nodes: int = 40
    gpus: int = 8
    """Cards on each node."""
    pods: int = 5_000
    seed: int = 1


@dataclass(frozen=True, slots=True)
class VramWorld:
    """Cards, and who comes to them, in order of time."""

    cards: tuple[VramCard, ...]
    pods: tuple[VramPod, ...]
    strangers: tuple[Stranger, ...]

    @property
    def usable(self) -> int:
        """MiB of all cards that processes can have."""
        return sum(card.usable for card in self.cards)


def make_world(shape: VramShape) -> VramWorld:
    """Return the world of a seed."""
    chance = random.Random(shape.seed)  # noqa: S311 — a benchmark, not a secret
    cards = tuple(
        VramCard(f"GPU-{node:04d}-{index}", f"node-{node:04d}", *_CARDS[node % len(_CARDS)])
        for node in range(shape.nodes)
        for index in range(shape.gpus)
    )
    usable = sum(card.usable for card in cards)
    pods: list[VramPod] = []
    at, asked = 0.0, _mean_ask()
    for number in range(shape.pods):
        at += chance.expovariate(_OFFERED * usable / (asked * _LIFE_S))
        pods.append(_pod(number, at, chance))
    strangers = sorted(
        (_stranger(number, at, cards, chance) for number in range(int(_STRANGERS_A_CARD * len(cards)))),
        key=lambda each: each.at,
    )
    return VramWorld(cards, tuple(pods), tuple(strangers))


def _mean_ask() -> float:
    mean = sum(a * w for a, w in zip(_ASKS, _ASK_WEIGHTS, strict=True)) / sum(_ASK_WEIGHTS)
    return mean * (0.92 + 0.08 * 2)


def _pod(number: int, at: float, chance: random.Random) -> VramPod:
    ask = chance.choices(_ASKS, weights=_ASK_WEIGHTS)[0]
    stuck = chance.random() < 0.03
    return VramPod(
        name=f"pod-{number:06d}",
        at=at,
        gpus=2 if chance.random() < 0.08 else 1,
        ask=ask,
        use=int(ask * chance.uniform(0.7, 1.0)),
        start_s=chance.uniform(1.0, 30.0),
        life_s=chance.expovariate(1 / _LIFE_S),
        grace_s=chance.uniform(0.5, 30.0),
        lag_s=chance.uniform(60.0, 300.0) if stuck else chance.expovariate(1 / 3.0),
    )


def _stranger(number: int, end: float, cards: tuple[VramCard, ...], chance: random.Random) -> Stranger:
    card = chance.choice(cards)
    return Stranger(
        name=f"stranger-{number:05d}",
        at=chance.uniform(0.0, end),
        card=card.name,
        mib=int(card.usable * chance.uniform(0.05, 0.5)),
        stay_s=chance.expovariate(1 / (2 * _LIFE_S)),
    )
