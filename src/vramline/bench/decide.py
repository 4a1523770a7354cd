"""CPU time of one decision: the product's own decide and reserve, on fleets of different size, in one run.

It is the default policy as it is in use: it has learnt what is usually asked for; pods come from templates.
"""

import random
import resource
import time
from collections import deque
from collections.abc import Callable

import msgspec

from vramline.decide.engine import decide
from vramline.decide.reserve import reservation_of
from vramline.model.ask import Ask, Constraints, MibSize, ShareSize, Size, WholeSize
from vramline.model.claim import Claim
from vramline.model.fleet import Fleet
from vramline.model.gpu import PhysicalGpu
from vramline.model.mix import class_of
from vramline.model.node import Node
from vramline.model.observation import Observation
from vramline.model.rules import Rules
from vramline.units import Mib

__all__ = ["DecideFigures", "DecideReport", "measure_decide", "peak_rss_mib"]

_CARDS = (
    ("NVIDIA H100 80GB HBM3", 81_559),
    ("NVIDIA A100-SXM4-40GB", 40_960),
    ("NVIDIA L40S", 46_068),
    ("Tesla T4", 15_360),
)
_NOW = 1_000.0
_TEMPLATES = 40
"""Pods come from so many templates, the first of them often and the last seldom."""
_WARM_UP = 200
"""Decisions that are made before the clock counts: until it is known what is asked for."""


class DecideFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One size of fleet."""

    nodes: int
    gpus_per_node: int
    decisions: int
    placed: int
    cpu_us: float
    """Mean CPU time of decide and reserve."""
    p50_us: float
    p99_us: float


class DecideReport(msgspec.Struct, frozen=True, kw_only=True):
    """All sizes of one run."""

    sizes: list[DecideFigures]
    ratio: float
    """Mean CPU time at the largest size over that at the smallest."""
    nodes_ratio: float
    """How much larger the largest fleet is."""
    peak_rss_mib: int


def measure_decide(
    sizes: list[int], *, gpus: int, pods: int, seed: int, report: Callable[[DecideFigures], None]
) -> DecideReport:
    """Decide about `pods` pods at each number of nodes; `report` hears of each size as it is done."""
    figures = []
    for nodes in sorted(sizes):
        figures.append(_measure_size(nodes, gpus=gpus, pods=pods, seed=seed))
        report(figures[-1])
    return DecideReport(
        sizes=figures,
        ratio=round(figures[-1].cpu_us / figures[0].cpu_us, 2),
        nodes_ratio=round(figures[-1].nodes / figures[0].nodes, 2),
        peak_rss_mib=peak_rss_mib(),
    )


def peak_rss_mib() -> int:
    """Return the most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _measure_size(nodes: int, *, gpus: int, pods: int, seed: int) -> DecideFigures:
    """Time decisions on a half-full fleet that stays so: with one pod a node more, the first one leaves."""
    dice = random.Random(seed)  # noqa: S311 — a workload, not a secret
    fleet = _build_fleet(nodes, gpus)
    templates = [_make_ask(dice, number, most_gpus=gpus) for number in range(_TEMPLATES)]
    often = [1 / (1 + number) for number in range(_TEMPLATES)]
    rules = Rules()
    stay: deque[str] = deque()
    took: list[int] = []
    placed = 0
    for number in range(pods + _WARM_UP):
        template = dice.choices(templates, often)[0]
        ask = msgspec.structs.replace(template, pod=f"bench/pod-{number}", pod_uid=f"pod-{number}")
        fleet.mix.see(class_of(ask))
        started = time.process_time_ns()
        decision = decide(fleet, ask, rules, now=_NOW)
        if decision.placement is not None:
            fleet.reserve(reservation_of(decision))
        ended = time.process_time_ns()
        if decision.placement is not None:
            stay.append(ask.pod_uid)
        if len(stay) > nodes:
            fleet.remove_claims(stay.popleft())
        if number >= _WARM_UP:
            took.append(ended - started)
            placed += decision.placement is not None
    took.sort()
    return DecideFigures(
        nodes=nodes,
        gpus_per_node=gpus,
        decisions=len(took),
        placed=placed,
        cpu_us=_micro(sum(took) / len(took)),
        p50_us=_micro(took[len(took) // 2]),
        p99_us=_micro(took[len(took) * 99 // 100]),
    )


def _build_fleet(nodes: int, gpus: int) -> Fleet:
    """Return mixed cards, looked at a moment ago: half of them have a pod, a third has a stranger."""
    fleet = Fleet()
    fleet.thinks_in_steps = True
    for number in range(nodes):
        name = f"node-{number:05d}"
        model, total = _CARDS[number % len(_CARDS)]
        cards = tuple(
            PhysicalGpu(
                uuid=f"{name}-{i}", node=name, index=i, model=model, total=Mib(total), numa=i * 2 // gpus
            )
            for i in range(gpus)
        )
        fleet.set_node(Node(name=name, gpus=cards))
        for card in cards:
            used = Mib(3_000 if (number + card.index) % 3 == 0 else 0)
            fleet.observe(card.uuid, Observation(at=_NOW - 1.0, used=used, processes=()))
            if (number + card.index) % 2:
                fleet.adopt(
                    [Claim(pod_uid=card.uuid, pod=f"old/{card.uuid}", gpu=card.uuid, mib=Mib(total // 3))]
                )
    return fleet


def _make_ask(dice: random.Random, number: int, *, most_gpus: int) -> Ask:
    size: Size = dice.choices(
        (MibSize(Mib(dice.randrange(1_000, 40_000, 100))), ShareSize(1, dice.choice((2, 4, 8))), WholeSize()),
        weights=(7, 2, 1),
    )[0]
    wanted = dice.choices((1, 2, 4, 8), weights=(80, 10, 7, 3))[0]
    return Ask(
        pod=f"bench/template-{number}",
        pod_uid=f"template-{number}",
        gpus=min(wanted, most_gpus),
        size=size,
        constraints=Constraints(use_models=("h100", "a100") if number % 10 == 0 else ()),
    )


def _micro(nanoseconds: float) -> float:
    return round(nanoseconds / 1_000, 1)
