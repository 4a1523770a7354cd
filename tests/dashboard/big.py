"""A cluster of 5,000 GPUs whose cards are busy, and change all the time."""

import random
from collections.abc import Callable

import builders
from scheduler.worlds import NOW
from vramline.model.claim import ClaimState
from vramline.model.rules import Rules
from vramline.simulate.cluster import EmbeddedCluster

__all__ = ["big_cluster", "change_some"]

TOTAL = 81_559


def big_cluster(nodes: int = 625, gpus: int = 8, clock: Callable[[], float] = lambda: NOW) -> EmbeddedCluster:
    """Return so many nodes, with two pods on most cards."""
    cluster, dice = EmbeddedCluster(Rules(), clock=clock), random.Random(1)
    claims = []
    for number in range(nodes):
        name = f"node-{number:04}"
        cards = [
            builders.gpu(f"GPU-{number:04}-{index}", node=name, index=index, total=TOTAL)
            for index in range(gpus)
        ]
        cluster.set_node(builders.node(name, *cards))
        for card in cards:
            for pod in range(dice.randrange(4)):
                mib, owner = (
                    dice.randrange(4_000, 24_000, 100),
                    f"team-{dice.randrange(40)}/pod-{card.uuid}-{pod}",
                )
                claims.append(
                    builders.claim(mib, owner, gpu=card.uuid, state=ClaimState.RUNNING, started_at=1.0)
                )
    cluster.fleet.adopt(claims)
    for uuid in list(cluster.fleet.columns.row_of):
        cluster.observe(uuid, builders.observation(0, at=clock()))
    return cluster


def change_some(cluster: EmbeddedCluster, dice: random.Random, part: float = 0.05) -> None:
    """Let a part of all cards be seen with another stranger on them."""
    cards = list(cluster.fleet.columns.row_of)
    for card in dice.sample(cards, int(len(cards) * part)):
        used = dice.randrange(0, 9_000)
        cluster.observe(card, builders.observation(used, builders.process(used), at=cluster.now()))
